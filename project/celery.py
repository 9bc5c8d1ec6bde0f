"""The site's Celery app: `celery -A project worker` and `celery -A project beat`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

app = Celery("agentcore_demo")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
