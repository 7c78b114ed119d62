"""Addresses."""

from django.contrib import admin
from django.urls import include, path

from rpm.health import healthz, readyz
from rpm.metrics import metrics

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("api/v1/", include("rpm.api_urls")),
    path("", include("apps.dashboard.urls")),
]
