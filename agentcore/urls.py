"""The reviewer page and the API, for a project that includes both at once."""

from django.urls import include, path

urlpatterns = [
    path("reviews/", include("agentcore.reviews.urls")),
    path("api/", include("agentcore.api.urls")),
]
