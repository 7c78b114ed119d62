"""Wiring: our own admin site in place of Django's, and the checks of a deployment."""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class RpmAdminConfig(AdminConfig):
    default_site = "rpm.admin.RpmAdminSite"


class RpmConfig(AppConfig):
    name = "rpm"
    label = "rpm"
