"""Addresses of people, credentials and preferences."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.accounts.api.account import AccountView, LeaveGroupView
from apps.accounts.api.credentials import CredentialViewSet
from apps.accounts.api.identity import IdentityProviderViewSet
from apps.accounts.api.log_in_rules import LogInRulesView
from apps.accounts.api.preferences import PreferencesView
from apps.accounts.api.service_accounts import ServiceAccountViewSet
from apps.accounts.api.token import TokenView
from apps.accounts.api.users import UserViewSet

router = SimpleRouter()
router.register("credentials", CredentialViewSet, "credential")
router.register("service-accounts", ServiceAccountViewSet, "service-account")
router.register("users", UserViewSet, "user")
router.register("identity-providers", IdentityProviderViewSet, "identity-provider")

urlpatterns = [
    *router.urls,
    path("account/", AccountView.as_view(), name="own-account"),
    path("account/leave-group/", LeaveGroupView.as_view(), name="leave-group"),
    path("log-in-rules/", LogInRulesView.as_view(), name="log-in-rules"),
    path("token/", TokenView.as_view(), name="token"),
    path("preferences/", PreferencesView.as_view(), name="preferences"),
]
