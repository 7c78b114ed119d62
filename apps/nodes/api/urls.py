"""Addresses of nodes and volumes."""

from rest_framework.routers import SimpleRouter

from apps.nodes.api.views import NodeViewSet, VolumeViewSet

router = SimpleRouter()
router.register("nodes", NodeViewSet, "node")
router.register("volumes", VolumeViewSet, "volume")

urlpatterns = router.urls
