"""Addresses of vaults."""

from rest_framework.routers import SimpleRouter

from apps.vaults.api.views import VaultViewSet

router = SimpleRouter()
router.register("vaults", VaultViewSet, "vault")

urlpatterns = router.urls
