"""The demonstration site: a small Django project around agentcore."""

from project.celery import app as celery_app

__all__ = ["celery_app"]
