"""Addresses of notices and their rules."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.notices.api.views import NoticeRuleViewSet, NoticeSettingsView, NoticeViewSet

router = SimpleRouter()
router.register("notices", NoticeViewSet, "notice")
router.register("notice-rules", NoticeRuleViewSet, "notice-rule")

urlpatterns = [
    *router.urls,
    path("notice-settings/", NoticeSettingsView.as_view(), name="notice-settings"),
]
