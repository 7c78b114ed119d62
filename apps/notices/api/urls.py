"""Addresses of notices and their rules."""

from rest_framework.routers import SimpleRouter

from apps.notices.api.views import NoticeRuleViewSet, NoticeViewSet

router = SimpleRouter()
router.register("notices", NoticeViewSet, "notice")
router.register("notice-rules", NoticeRuleViewSet, "notice-rule")

urlpatterns = router.urls
