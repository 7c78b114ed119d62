"""Addresses of nodes and volumes."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.nodes.api.views import (
    InstallationView,
    MaintenanceView,
    NodeViewSet,
    RestoreConfirmView,
    VolumeViewSet,
)

router = SimpleRouter()
router.register("nodes", NodeViewSet, "node")
router.register("volumes", VolumeViewSet, "volume")

urlpatterns = [
    *router.urls,
    path("installation/", InstallationView.as_view(), name="installation"),
    path("installation/maintenance/", MaintenanceView.as_view(), name="maintenance"),
    path("installation/confirm-restored/", RestoreConfirmView.as_view(), name="confirm-restored"),
]
