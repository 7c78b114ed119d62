"""Addresses of usage."""

from django.urls import path

from apps.usage.api.views import IdleView, RatesView, RateView, UsageCsvView, UsageView

urlpatterns = [
    path("usage/", UsageView.as_view(), name="usage"),
    path("usage/idle/", IdleView.as_view(), name="usage-idle"),
    path("usage/rates/", RatesView.as_view(), name="usage-rates"),
    path("usage/rates/<int:pk>/", RateView.as_view(), name="usage-rate"),
    path("usage/csv/", UsageCsvView.as_view(), name="usage-csv"),
]
