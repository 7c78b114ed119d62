"""Identity providers, how their groups map to ours, and how people may log in."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models

from apps.core.keyring import SealContext
from apps.core.models import unique_name

ADDRESS_LENGTH = 500
CLAIM_LENGTH = 200
# Sign-in pages and addresses at the provider contain it: short, and never changed.
SLUG_LENGTH = 40


class Protocol(models.TextChoices):
    OIDC = "oidc", "OpenID Connect"
    SAML = "saml", "SAML 2.0"


class Pkce(models.TextChoices):
    NONE = "none", "None"
    PLAIN = "plain", "Plain"
    S256 = "S256", "S256"


def _address(name: str, text: str) -> "models.CharField[str, str]":
    return models.CharField(name, max_length=ADDRESS_LENGTH, blank=True, help_text=text)


def _claim(name: str, text: str) -> "models.CharField[str, str]":
    return models.CharField(name, max_length=CLAIM_LENGTH, blank=True, help_text=text)


class ProviderFields(models.Model):
    """Fields of both protocols: who may sign in, and what the claims mean."""

    name = models.CharField(
        "display name",
        max_length=100,
        help_text="What the button of the sign-in page says after “Continue with”.",
    )
    is_active = models.BooleanField("active", default=True, help_text="People can sign in with it.")
    creates_people = models.BooleanField(
        "create people at their first log-in",
        default=False,
        help_text="Off: only invited and existing people can sign in.",
    )
    requires_verified_email = models.BooleanField(
        "only verified e-mail addresses",
        default=True,
        help_text="First log-ins need an address that the provider has verified.",
    )
    trusts_email = models.BooleanField(
        "its addresses count as verified",
        default=False,
        help_text=(
            "Only where people cannot choose their address at the provider themselves: with "
            "another person's address they would sign in as that person."
        ),
    )
    syncs_groups = models.BooleanField(
        "synchronise groups",
        default=False,
        help_text=(
            "At each log-in the groups named below are joined and left as the provider says. "
            "Other groups stay as they are."
        ),
    )
    claim_id = _claim("claim of the id", "It never changes and is never given to another person.")
    claim_email = _claim("claim of the e-mail address", "Usually email.")
    claim_name = _claim("claim of the whole name", "Used where the two parts are missing.")
    claim_given_name = _claim("claim of the given name", "Usually given_name.")
    claim_family_name = _claim("claim of the family name", "Usually family_name.")
    claim_picture = _claim("claim of the picture", "Shown by the test only; not stored.")
    claim_groups = _claim(
        "claim of the groups",
        "A list of names; dots reach into objects, as in realm_access.roles.",
    )

    class Meta:
        abstract = True


class OidcFields(models.Model):
    """OpenID Connect."""

    client_id = models.CharField(
        "client id", max_length=300, blank=True, help_text="As the provider gave it."
    )
    client_secret_sealed = models.TextField(blank=True, editable=False)
    discovery_url = _address(
        "discovery address",
        "Ends with /.well-known/openid-configuration; then the six below may stay empty.",
    )
    issuer = _address(
        "issuer", "What identity tokens must name; empty: as the discovery address begins."
    )
    authorization_url = _address("authorisation endpoint", "Where people are sent to log in.")
    token_url = _address("token endpoint", "Where a code is exchanged for tokens.")
    user_info_url = _address("user-info endpoint", "Asked where user data comes from there.")
    revocation_url = _address(
        "revocation endpoint", "The access token is given back there after each log-in."
    )
    jwks_url = _address("JWKS endpoint", "The keys with which identity tokens are signed.")
    uses_user_info = models.BooleanField(
        "user data from the user-info endpoint",
        default=False,
        help_text="Off: the claims of the identity token are enough.",
    )
    verifies_signature = models.BooleanField(
        "verify the signature of identity tokens",
        default=True,
        help_text="Off, only the TLS connection to the token endpoint vouches for them.",
    )
    pkce = models.CharField(
        "PKCE",
        max_length=8,
        choices=Pkce,
        default=Pkce.S256,
        help_text="S256, unless the provider cannot.",
    )
    scopes = models.CharField(
        "standard scopes",
        max_length=200,
        default="openid profile email",
        blank=True,
        help_text="Separated by spaces; openid is always asked for.",
    )
    extra_scopes = models.CharField(
        "additional scopes",
        max_length=500,
        blank=True,
        help_text="The scope that makes the provider send groups.",
    )

    class Meta:
        abstract = True


class SamlFields(models.Model):
    """SAML 2.0."""

    entity_id = models.CharField(
        "entity id",
        max_length=ADDRESS_LENGTH,
        blank=True,
        help_text="The entity id of this installation; empty: the address of its metadata.",
    )
    metadata = models.TextField(
        "metadata of the provider",
        blank=True,
        help_text="The XML file that the provider offers: its address, name and certificates.",
    )
    requires_signed_assertions = models.BooleanField(
        "require signed assertions",
        default=True,
        help_text="Off, a signature around the whole answer is enough. One must be there.",
    )
    signs_requests = models.BooleanField(
        "sign our requests",
        default=False,
        help_text="With a key pair that is made here; its certificate is in our metadata.",
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
        help_text="Can log in with a password while passwords are off.",
    )
    requires_second_factor = models.BooleanField(default=False)
    second_factor_groups = models.ManyToManyField(Group, blank=True, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(allows_passwords=True) | models.Q(break_glass__isnull=False),
                name="somebody_can_always_log_in",
                violation_error_message="Choose who may still log in with a password.",
            ),
        ]

    def __str__(self) -> str:
        return "How people log in"
