"""Addresses of usage."""

from django.urls import path

from apps.usage.api.views import IdleView, UsageCsvView, UsageView

urlpatterns = [
    path("usage/", UsageView.as_view(), name="usage"),
    path("usage/idle/", IdleView.as_view(), name="usage-idle"),
    path("usage/csv/", UsageCsvView.as_view(), name="usage-csv"),
]
