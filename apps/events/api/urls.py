"""Addresses of the audit log."""

from rest_framework.routers import SimpleRouter

from apps.events.api.views import AuditViewSet

router = SimpleRouter()
router.register("audit", AuditViewSet, "audit")

urlpatterns = router.urls
