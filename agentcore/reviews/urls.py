"""The reviewers' pages. A decision has an address of its own, which answers POST only."""

from django.urls import path

from agentcore.reviews import bulk, deciding, views

app_name = "agentcore-reviews"

urlpatterns = [
    path("", views.queue, name="list"),
    path("decide/", bulk.decide, name="decide"),
    path("<int:approval_id>/", views.detail, name="detail"),
    path("<int:approval_id>/approve/", deciding.approve, name="approve"),
    path("<int:approval_id>/reject/", deciding.reject, name="reject"),
    path("<int:approval_id>/respond/", deciding.respond, name="respond"),
    path("<int:approval_id>/renew/", deciding.renew, name="renew"),
]
