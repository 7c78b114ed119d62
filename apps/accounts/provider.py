"""The providers that django-allauth knows: ours, over its own. It looks for them in this module."""

from apps.accounts.identity.providers import OidcProvider, SamlProvider

provider_classes = [OidcProvider, SamlProvider]
