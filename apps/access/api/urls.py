"""Addresses of vaults."""

from rest_framework.routers import SimpleRouter

from apps.access.api.vaults import VaultViewSet

router = SimpleRouter()
router.register("vaults", VaultViewSet, "vault")

urlpatterns = router.urls
