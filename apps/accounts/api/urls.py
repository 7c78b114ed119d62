"""Addresses of credentials."""

from rest_framework.routers import SimpleRouter

from apps.accounts.api.credentials import CredentialViewSet

router = SimpleRouter()
router.register("credentials", CredentialViewSet, "credential")

urlpatterns = router.urls
