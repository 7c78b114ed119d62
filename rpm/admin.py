"""The admin site: who may enter follows from groups alone."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.sites import UnfoldAdminSite

from apps.accounts.selectors import is_admin, may_enter_admin
from apps.dashboard.cards.restore_banner import restore_banner


class RpmAdminSite(UnfoldAdminSite):
    site_title = "RPM"
    site_header = "RPM administration"
    index_title = "Administration"

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The first page; after a backup was restored it says what to do."""
        restored = restore_banner() if is_admin(request.user) else None
        if restored is not None:
            words = f"The database was restored from a backup. {restored.sentence}"
            then = f" Then: {restored.command}" if restored.command else ""
            messages.warning(request, words + then)
        return super().index(request, extra_context)

    def login(
        self,
        request: HttpRequest,
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002  # Django's
    ) -> HttpResponse:
        """There is one page to sign in at, with second factors and identity providers."""
        if request.user.is_authenticated:
            raise Http404
        return redirect_to_login(request.GET.get("next", request.get_full_path()))

    def password_change(
        self,
        request: HttpRequest,  # noqa: ARG002  # Django's
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """Passwords change on the account page, which asks for the old one and records it."""
        return redirect("account")

    password_change_done = password_change

    def has_permission(self, request: HttpRequest) -> bool:
        return may_enter_admin(request.user)


def may_enter(request: HttpRequest) -> bool:
    """For lines of the side bar that every user of the site sees."""
    return may_enter_admin(request.user)


def administers(request: HttpRequest) -> bool:
    """For lines of the side bar that administrators see."""
    return is_admin(request.user)
