from django.apps import AppConfig


class DeskConfig(AppConfig):
    name = "desk"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from desk import handlers  # noqa: F401
