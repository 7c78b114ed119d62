"""Identity providers, how their groups map to ours, and how people may log in."""

from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.keyring import SealContext
from apps.core.models import unique_name

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as Text

ADDRESS_LENGTH = 500
CLAIM_LENGTH = 200
# Sign-in pages and addresses at the provider contain it: short, and never changed.
SLUG_LENGTH = 40


class Protocol(models.TextChoices):
    OIDC = "oidc", _("OpenID Connect")
    SAML = "saml", _("SAML 2.0")


class Pkce(models.TextChoices):
    NONE = "none", _("None")
    PLAIN = "plain", _("Plain")
    S256 = "S256", _("S256")


def _address(name: "Text", text: "Text") -> "models.CharField[str, str]":
    return models.CharField(name, max_length=ADDRESS_LENGTH, blank=True, help_text=text)


def _claim(name: "Text", text: "Text") -> "models.CharField[str, str]":
    return models.CharField(name, max_length=CLAIM_LENGTH, blank=True, help_text=text)


class ProviderFields(models.Model):
    """Fields of both protocols: who may sign in, and what the claims mean."""

    name = models.CharField(
        _("display name"),
        max_length=100,
        help_text=_("What the button of the sign-in page says after “Continue with”."),
    )
    is_active = models.BooleanField(
        _("active"), default=True, help_text=_("People can sign in with it.")
    )
    creates_people = models.BooleanField(
        _("create people at their first log-in"),
        default=False,
        help_text=_("Off: only invited and existing people can sign in."),
    )
    requires_verified_email = models.BooleanField(
        _("only verified e-mail addresses"),
        default=True,
        help_text=_("First log-ins need an address that the provider has verified."),
    )
    trusts_email = models.BooleanField(
        _("its addresses count as verified"),
        default=False,
        help_text=_(
            "Only where people cannot choose their address at the provider themselves: with "
            "another person's address they would sign in as that person."
        ),
    )
    syncs_groups = models.BooleanField(
        _("synchronise groups"),
        default=False,
        help_text=_(
            "At each log-in the groups named below are joined and left as the provider says. "
            "Other groups stay as they are."
        ),
    )
    claim_id = _claim(
        _("claim of the id"), _("It never changes and is never given to another person.")
    )
    claim_email = _claim(_("claim of the e-mail address"), _("Usually email."))
    claim_name = _claim(_("claim of the whole name"), _("Used where the two parts are missing."))
    claim_given_name = _claim(_("claim of the given name"), _("Usually given_name."))
    claim_family_name = _claim(_("claim of the family name"), _("Usually family_name."))
    claim_picture = _claim(_("claim of the picture"), _("Shown by the test only; not stored."))
    claim_groups = _claim(
        _("claim of the groups"),
        _("A list of names; dots reach into objects, as in realm_access.roles."),
    )

    class Meta:
        abstract = True


class OidcFields(models.Model):
    """OpenID Connect."""

    client_id = models.CharField(
        _("client id"), max_length=300, blank=True, help_text=_("As the provider gave it.")
    )
    client_secret_sealed = models.TextField(blank=True, editable=False)
    discovery_url = _address(
        _("discovery address"),
        _("Ends with /.well-known/openid-configuration; then the six below may stay empty."),
    )
    issuer = _address(
        _("issuer"), _("What identity tokens must name; empty: as the discovery address begins.")
    )
    authorization_url = _address(_("authorisation endpoint"), _("Where people are sent to log in."))
    token_url = _address(_("token endpoint"), _("Where a code is exchanged for tokens."))
    user_info_url = _address(_("user-info endpoint"), _("Asked where user data comes from there."))
    revocation_url = _address(
        _("revocation endpoint"), _("The access token is given back there after each log-in.")
    )
    jwks_url = _address(_("JWKS endpoint"), _("The keys with which identity tokens are signed."))
    uses_user_info = models.BooleanField(
        _("user data from the user-info endpoint"),
        default=False,
        help_text=_("Off: the claims of the identity token are enough."),
    )
    verifies_signature = models.BooleanField(
        _("verify the signature of identity tokens"),
        default=True,
        help_text=_("Off, only the TLS connection to the token endpoint vouches for them."),
    )
    pkce = models.CharField(
        _("PKCE"),
        max_length=8,
        choices=Pkce,
        default=Pkce.S256,
        help_text=_("S256, unless the provider cannot."),
    )
    scopes = models.CharField(
        _("standard scopes"),
        max_length=200,
        default="openid profile email",
        blank=True,
        help_text=_("Separated by spaces; openid is always asked for."),
    )
    extra_scopes = models.CharField(
        _("additional scopes"),
        max_length=500,
        blank=True,
        help_text=_("The scope that makes the provider send groups."),
    )

    class Meta:
        abstract = True


class SamlFields(models.Model):
    """SAML 2.0."""

    entity_id = models.CharField(
        _("entity id"),
        max_length=ADDRESS_LENGTH,
        blank=True,
        help_text=_("The entity id of this installation; empty: the address of its metadata."),
    )
    metadata = models.TextField(
        _("metadata of the provider"),
        blank=True,
        help_text=_("The XML file that the provider offers: its address, name and certificates."),
    )
    requires_signed_assertions = models.BooleanField(
        _("require signed assertions"),
        default=True,
        help_text=_("Off, a signature around the whole answer is enough. One must be there."),
    )
    signs_requests = models.BooleanField(
        _("sign our requests"),
        default=False,
        help_text=_("With a key pair that is made here; its certificate is in our metadata."),
    )
    certificate = models.TextField(blank=True, editable=False)
    private_key_sealed = models.TextField(blank=True, editable=False)

    class Meta:
        abstract = True


class IdentityProvider(ProviderFields, OidcFields, SamlFields):
    """An identity provider; the only place that holds its settings.

    django-allauth gets its apps from these rows (`apps.accounts.identity.adapter`) and has none of
    its own. Links of people to it are allauth's rows, under `slug`.
    """

    slug = models.CharField(max_length=SLUG_LENGTH, unique=True, editable=False)
    protocol = models.CharField(max_length=8, choices=Protocol, editable=False)
    preset = models.CharField(max_length=32, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [unique_name("identity_provider", removable=False)]

    def __str__(self) -> str:
        return self.name

    @property
    def client_secret_context(self) -> SealContext:
        """The seal context of the client secret; its id exists before the row and never changes."""
        return SealContext("accounts.identity_provider.client_secret", (self.slug,))

    @property
    def private_key_context(self) -> SealContext:
        """The seal context of the private key."""
        return SealContext("accounts.identity_provider.private_key", (self.slug,))


class IdentityGroup(models.Model):
    """Maps a group of the provider to a group here."""

    provider = models.ForeignKey(IdentityProvider, on_delete=models.CASCADE, related_name="mapping")
    external_name = models.CharField(max_length=255)
    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="+")

    class Meta:
        ordering = ["external_name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "external_name", "group"], name="identity_group_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.external_name} = {self.group_id}"


class UsedAssertion(models.Model):
    """A SAML assertion that was used to sign in: it counts once. Removed when it has expired."""

    provider_slug = models.CharField(max_length=SLUG_LENGTH)
    assertion_hash = models.CharField(max_length=64)
    until = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider_slug", "assertion_hash"], name="assertion_counts_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider_slug} until {self.until:%Y-%m-%d %H:%M}"


class LogInRules(models.Model):
    """How people may log in here; one row, created at the first change."""

    allows_passwords = models.BooleanField(default=True)
    break_glass = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text=_("Can log in with a password while passwords are off."),
    )
    requires_second_factor = models.BooleanField(default=False)
    second_factor_groups = models.ManyToManyField(Group, blank=True, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(allows_passwords=True) | models.Q(break_glass__isnull=False),
                name="somebody_can_always_log_in",
                violation_error_message=_("Choose who may still log in with a password."),
            ),
        ]

    def __str__(self) -> str:
        return "How people log in"
