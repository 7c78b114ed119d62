"""Addresses of volumes and the installation; those of nodes are in apps/execution."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.nodes.api.views import (
    InstallationView,
    MaintenanceView,
    RestoreConfirmView,
    VolumeViewSet,
)

router = SimpleRouter()
router.register("volumes", VolumeViewSet, "volume")

urlpatterns = [
    *router.urls,
    path("installation/", InstallationView.as_view(), name="installation"),
    path("installation/maintenance/", MaintenanceView.as_view(), name="maintenance"),
    path("installation/confirm-restored/", RestoreConfirmView.as_view(), name="confirm-restored"),
]
