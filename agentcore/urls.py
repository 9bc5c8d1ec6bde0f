"""The reviewer page, the page of one's memories and the API, for a project that includes all at once."""

from django.urls import include, path

urlpatterns = [
    path("reviews/", include("agentcore.reviews.urls")),
    path("memory/", include("agentcore.memories.urls")),
    path("api/", include("agentcore.api.urls")),
]
