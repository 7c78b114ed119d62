"""Addresses of passes."""

from rest_framework.routers import SimpleRouter

from apps.allocation.api.views import PassViewSet

router = SimpleRouter()
router.register("passes", PassViewSet, "pass")

urlpatterns = router.urls
