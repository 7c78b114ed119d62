"""Addresses of nodes."""

from rest_framework.routers import SimpleRouter

from apps.execution.api.views import NodeViewSet

router = SimpleRouter()
router.register("nodes", NodeViewSet, "node")

urlpatterns = router.urls
