"""The tests' URLs: agentcore as a project mounts it, with log-in and admin."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("agentcore.urls")),
    path("admin/", admin.site.urls),
    path("accounts/", include("django.contrib.auth.urls")),
]
