"""A Celery app whose broker is this process's memory: tasks are sent, and run only when a test asks for it."""

from celery import Celery

app = Celery("agentcore_tests")
app.config_from_object("django.conf:settings", namespace="CELERY")
