"""The admin site: who may enter follows from groups alone."""

from django.http import HttpRequest
from unfold.sites import UnfoldAdminSite

from apps.accounts.selectors import is_admin, may_enter_admin


class RpmAdminSite(UnfoldAdminSite):
    site_title = "RPM"
    site_header = "RPM administration"
    index_title = "Administration"

    def has_permission(self, request: HttpRequest) -> bool:
        return may_enter_admin(request.user)


def may_enter(request: HttpRequest) -> bool:
    """For lines of the side bar that everybody sees who may enter."""
    return may_enter_admin(request.user)


def administers(request: HttpRequest) -> bool:
    """For lines of the side bar that administrators see."""
    return is_admin(request.user)
