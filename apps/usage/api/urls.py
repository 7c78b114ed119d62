"""Addresses of usage."""

from django.urls import path

from apps.usage.api import views

urlpatterns = [
    path("usage/", views.UsageView.as_view(), name="usage"),
    path("usage/idle/", views.IdleView.as_view(), name="usage-idle"),
    path("usage/threshold/", views.UseThresholdView.as_view(), name="usage-threshold"),
    path("usage/rates/", views.RatesView.as_view(), name="usage-rates"),
    path("usage/rates/<int:pk>/", views.RateView.as_view(), name="usage-rate"),
    path("usage/csv/", views.UsageCsvView.as_view(), name="usage-csv"),
]
