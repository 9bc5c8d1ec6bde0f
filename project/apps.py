"""Makes the site an app of its own, so that agentcore finds project/agents.py."""

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    name = "project"
    label = "project"
    verbose_name = "agentcore demonstration"
    default_auto_field = "django.db.models.BigAutoField"
