"""The page of one's own memories. What changes something has an address of its own, which answers POST only."""

from django.urls import path

from agentcore.memories import views

app_name = "agentcore-memories"

urlpatterns = [
    path("", views.memories, name="list"),
    path("export/", views.export, name="export"),
    path("erase/", views.erase, name="erase"),
    path("<int:memory_id>/", views.one, name="one"),
    path("<int:memory_id>/correct/", views.correct, name="correct"),
    path("<int:memory_id>/delete/", views.delete, name="delete"),
]
