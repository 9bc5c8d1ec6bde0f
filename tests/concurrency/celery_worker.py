"""The Celery app of a worker of these tests: `celery -A tests.concurrency.celery_worker worker`.

CRASH_BROKER     where its messages are
CRASH_LEDGER     the file in which tools and model write what they do
CRASH_DELAY      seconds that each call of a tool or the model takes
"""

import os

import django
from celery import Celery

django.setup()

from tests.concurrency import crash_worker  # noqa: E402 - its models need Django

app = Celery("agentcore_concurrency", broker=os.environ["CRASH_BROKER"])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(broker_url=os.environ["CRASH_BROKER"])

crash_worker.define_agent()
crash_worker.install_model()
