"""Addresses of tasks."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from apps.tasks.api.bulk_actions import bulk_actions
from apps.tasks.api.dependencies import dependencies
from apps.tasks.api.views import TaskViewSet

router = SimpleRouter()
router.register("tasks", TaskViewSet, basename="task")

urlpatterns = [
    path("tasks/bulk-actions/", bulk_actions, name="task-bulk-actions"),
    path("tasks/<str:pk>/dependencies/", dependencies, name="task-dependencies"),
    path("", include(router.urls)),
]
