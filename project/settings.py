"""Settings of the demonstration site. Everything that differs between machines comes from the environment.

DEBUG                  1 (default) or 0
DJANGO_INSECURE_HTTP   1: with DEBUG off, serve plain HTTP (no redirect, no secure cookies); for this machine only
TRUST_PROXY            1: the proxy in front sets X-Forwarded-Proto, and strips it from what clients send
ALLOWED_HOSTS          comma-separated host names
CSRF_TRUSTED_ORIGINS   comma-separated origins
SECRET_KEY             else the file `secret-key` in the data folder, made at the first start
AGENTCORE_DEMO_DIR     the data folder, `.demo` by default
DATABASE               sqlite (default), postgres or mariadb; DATABASE_NAME, and PGHOST, PGPORT, PGUSER, PGPASSWORD or
                       MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_USER, MYSQL_PWD say where
REDIS_URL              broker, channel layer and cache; without it turns run in this process
AGENTCORE_MODEL        the agents' default model, e.g. openai:gpt-5-mini with OPENAI_API_KEY and OPENAI_BASE_URL
LOG_LEVEL              WARNING by default
"""

import os
import secrets
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def flag(name: str, default: str = "0") -> bool:
    return os.environ.get(name, default).strip().lower() in {"1", "true", "yes", "on"}


def words(name: str, default: str = "") -> list[str]:
    return [word.strip() for word in os.environ.get(name, default).split(",") if word.strip()]


def stored_secret_key(path: Path) -> str:
    """The key in this file, written with mode 600 if there is none. Two processes may start at once: one file wins."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(50))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        draft.unlink()
    return path.read_text(encoding="ascii").strip()


DATA_DIR = Path(os.environ.get("AGENTCORE_DEMO_DIR", ROOT / ".demo")).resolve()
try:
    DATA_DIR.mkdir(parents=True, exist_ok=True)
    SECRET_KEY = os.environ.get("SECRET_KEY") or stored_secret_key(DATA_DIR / "secret-key")
except OSError as error:
    sys.exit(
        f"The data folder {DATA_DIR} cannot be used: {error.strerror}. Name another in AGENTCORE_DEMO_DIR, "
        "or with quickstart's --data-dir."
    )

# Security

DEBUG = flag("DEBUG", "1")
ALLOWED_HOSTS = words("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = words("CSRF_TRUSTED_ORIGINS")
X_FRAME_OPTIONS = "DENY"

HTTPS = not DEBUG and not flag("DJANGO_INSECURE_HTTP")
SECURE_SSL_REDIRECT = HTTPS
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
if flag("TRUST_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Apps

INSTALLED_APPS = [
    "daphne",  # before staticfiles: `runserver` then serves WebSockets too
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "rest_framework.authtoken",
    "django_filters",
    "drf_spectacular",
    "agentcore",
    "project.apps.ProjectConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "project.middleware.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
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

# Database

DATABASE_NAME = os.environ.get("DATABASE_NAME", "agentcore")


def database(kind: str) -> dict[str, Any]:
    if kind == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA_DIR / "db.sqlite3",
            # A writer takes its lock when it begins and others wait for it, instead of failing in the middle.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL;"},
        }
    if kind == "postgres":
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": DATABASE_NAME,
            "HOST": os.environ.get("PGHOST", "127.0.0.1"),
            "PORT": os.environ.get("PGPORT", "5432"),
            "USER": os.environ.get("PGUSER", "postgres"),
            "PASSWORD": os.environ.get("PGPASSWORD", ""),
        }
    if kind == "mariadb":
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": DATABASE_NAME,
            "HOST": os.environ.get("MYSQL_HOST", "127.0.0.1"),
            "PORT": os.environ.get("MYSQL_TCP_PORT", "3306"),
            "USER": os.environ.get("MYSQL_USER", "root"),
            "PASSWORD": os.environ.get("MYSQL_PWD", ""),
            "OPTIONS": {"charset": "utf8mb4", "init_command": "SET sql_mode='STRICT_TRANS_TABLES'"},
        }
    raise ValueError(f"DATABASE is {kind!r}; it can be sqlite, postgres or mariadb")


DATABASES = {"default": database(os.environ.get("DATABASE", "sqlite"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis, or everything in this process

REDIS_URL = os.environ.get("REDIS_URL")

CACHES: dict[str, Any]
CHANNEL_LAYERS: dict[str, Any]
if REDIS_URL:
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            "KEY_PREFIX": "agentcore-demo",
        }
    }
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            # The layer's own reads block for 5 s, which is redis-py's default timeout: without a longer one, idle
            # sockets are dropped.
            "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": 30}], "prefix": "agentcore-demo"},
        }
    }
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    CHANNEL_LAYERS = {"default": {"BACKEND": "agentcore.events.layer.InProcessChannelLayer"}}

CELERY_BROKER_URL = REDIS_URL or "memory://"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # turns are long: take one at a time
CELERY_BEAT_SCHEDULE = {"agentcore-tick": {"task": "agentcore.tick", "schedule": 15.0, "options": {"expires": 15}}}
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "celerybeat-schedule")

# agentcore

AGENTCORE: dict[str, Any] = {
    "DISPATCH": "celery" if REDIS_URL else "thread",
    "DEFAULT_MODEL": os.environ.get("AGENTCORE_MODEL", "demo:support"),
    "REDIS_URL": REDIS_URL,
}
if "OPENAI_API_KEY" in os.environ or "OPENAI_BASE_URL" in os.environ:
    AGENTCORE["PROVIDERS"] = {
        "openai": {
            "api_key": os.environ.get("OPENAI_API_KEY", "none"),
            "base_url": os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
        }
    }

# Users and the API

LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/accounts/login/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {"TITLE": "agentcore", "VERSION": "0.1.0", "SERVE_INCLUDE_SCHEMA": False}

# Language, time, static files, logs

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
WHITENOISE_USE_FINDERS = True  # a demonstration needs no collectstatic

LOG_LEVEL = os.environ.get("LOG_LEVEL", "WARNING")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
    "loggers": {"django": {"handlers": ["console"], "level": LOG_LEVEL, "propagate": False}},
}
