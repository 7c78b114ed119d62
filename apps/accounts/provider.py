"""Registers the providers of this project in place of django-allauth's, which loads this module."""

from apps.accounts.identity.providers import OidcProvider, SamlProvider

provider_classes = [OidcProvider, SamlProvider]
