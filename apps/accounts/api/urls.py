"""Addresses of credentials and preferences."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.accounts.api.credentials import CredentialViewSet
from apps.accounts.api.preferences import PreferencesView

router = SimpleRouter()
router.register("credentials", CredentialViewSet, "credential")

urlpatterns = [
    *router.urls,
    path("preferences/", PreferencesView.as_view(), name="preferences"),
]
