"""Settings of the tests: the least a project needs, on the database that AGENTCORE_TEST_DB names.

AGENTCORE_TEST_DB      sqlite (default), postgres or mariadb; PGHOST and the like, MYSQL_HOST and the like say where
AGENTCORE_TEST_NAME    an existing database to use as it is: for child processes of a test, which hands on its own
AGENTCORE_TEST_PGVECTOR  set it when the PostgreSQL has the extension `vector`
REDIS_URL              a Redis for the tests that want one
"""

import os
import tempfile
from pathlib import Path
from typing import Any

TEST_DB = os.environ.get("AGENTCORE_TEST_DB", "sqlite")
REDIS_URL = os.environ.get("REDIS_URL")

# The process id lets several runs share one server or one temporary folder.
NAME = os.environ.get("AGENTCORE_TEST_NAME", f"agentcore_{os.getpid()}")


def database(kind: str) -> dict[str, Any]:
    if kind == "sqlite":
        # A file, not memory: threads and child processes open the same database over connections of their own.
        path = Path(tempfile.gettempdir(), f"test_{NAME}.sqlite3")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("AGENTCORE_TEST_NAME", path),
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
            },
            "TEST": {"NAME": path},
        }
    if kind == "postgres":
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": NAME,
            "HOST": os.environ.get("PGHOST", "127.0.0.1"),
            "PORT": os.environ.get("PGPORT", "5432"),
            "USER": os.environ.get("PGUSER", "postgres"),
            "PASSWORD": os.environ.get("PGPASSWORD", ""),
        }
    if kind == "mariadb":
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": NAME,
            "HOST": os.environ.get("MYSQL_HOST", "127.0.0.1"),
            "PORT": os.environ.get("MYSQL_TCP_PORT", "3306"),
            "USER": os.environ.get("MYSQL_USER", "root"),
            "PASSWORD": os.environ.get("MYSQL_PWD", ""),
            "OPTIONS": {"charset": "utf8mb4", "init_command": "SET sql_mode='STRICT_TRANS_TABLES'"},
            "TEST": {"CHARSET": "utf8mb4"},
        }
    raise ValueError(f"AGENTCORE_TEST_DB is {kind!r}; it can be sqlite, postgres or mariadb")


DATABASES = {"default": database(TEST_DB)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

SECRET_KEY = "only-for-tests-" * 4
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
ROOT_URLCONF = "tests.urls"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "rest_framework.authtoken",
    "django_filters",
    "drf_spectacular",
    "agentcore",
]
if TEST_DB == "postgres" and os.environ.get("AGENTCORE_TEST_PGVECTOR"):
    INSTALLED_APPS.append("agentcore.vectors.pgvector")

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the real ones are slow on purpose

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

CHANNEL_LAYERS = {"default": {"BACKEND": "agentcore.events.layer.InProcessChannelLayer"}}

# Tasks go to a broker that nobody reads: a test runs its queue itself.
CELERY_BROKER_URL = "memory://"
CELERY_TASK_ALWAYS_EAGER = False

AGENTCORE: dict[str, Any] = {"DISPATCH": "celery"}
