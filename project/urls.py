"""Where the demonstration site puts the chat, the API, the reviewers' pages, the page of memories and the admin."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    # Browsers ask for it on pages that name no icon of their own, as the admin's.
    path("favicon.ico", RedirectView.as_view(url=static("agentcore/icon.svg"))),
    path("", include("project.chat")),
    path("api/", include("agentcore.api.urls")),
    path("reviews/", include("agentcore.reviews.urls")),
    path("memory/", include("agentcore.memories.urls")),
    path("admin/", admin.site.urls),
    path("accounts/", include("django.contrib.auth.urls")),
]
