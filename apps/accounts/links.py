"""Addresses that are sent to people."""

from collections.abc import Callable

from django.http import HttpRequest
from django.urls import reverse


def join_address(request: HttpRequest) -> Callable[[str], str]:
    """From a token to the whole address of the page that takes it, on the site that was asked."""
    return lambda token: request.build_absolute_uri(reverse("join", args=[token]))
