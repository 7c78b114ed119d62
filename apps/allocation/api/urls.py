"""Addresses of passes, and of what they say about tasks."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from apps.allocation.api.tasks import check, explain
from apps.allocation.api.views import PassViewSet

router = SimpleRouter()
router.register("passes", PassViewSet, "pass")

urlpatterns = [
    path("tasks/check/", check, name="task-check"),
    path("tasks/<str:pk>/explain/", explain, name="task-explain"),
    path("", include(router.urls)),
]
