"""The tests. Importing the package sets up their Celery app, in child processes too."""

from tests.celery import app as celery_app

__all__ = ["celery_app"]
