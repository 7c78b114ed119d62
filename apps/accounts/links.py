"""Addresses that are sent to people."""

from collections.abc import Callable

from django.http import HttpRequest
from django.urls import reverse


def join_address(request: HttpRequest) -> Callable[[str], str]:
    """Build the full address of the page for a token, on the site of the request."""
    return lambda token: request.build_absolute_uri(reverse("join", args=[token]))
