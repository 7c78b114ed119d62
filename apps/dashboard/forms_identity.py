"""Forms of identity providers and of how people log in."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib.auth.models import Group

from apps.accounts.identity.presets import PRESETS, ProviderPreset
from apps.accounts.models import ADMINS, USERS, IdentityProvider, LogInRules, Protocol, User
from apps.accounts.services.identity import ADDRESSES, FIELDS, MOST_METADATA
from apps.core.keyring import HIDDEN
from apps.dashboard.forms_base import PageForm

_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
_MONO = {"class": "font-mono", **_PLAIN}
Pairs = list[tuple[str, Group]]

# How the page groups the fields; the rest follows under "Claims".
_PARTS: dict[str, tuple[tuple[Any, tuple[str, ...]], ...]] = {
    Protocol.OIDC: (
        ("Client", ("name", "client_id", "client_secret")),
        ("Addresses of the provider", ADDRESSES),
        (
            "Tokens",
            ("scopes", "extra_scopes", "pkce", "verifies_signature", "uses_user_info"),
        ),
    ),
    Protocol.SAML: (
        ("Provider", ("name", "metadata_file", "entity_id")),
        ("Signatures", ("requires_signed_assertions", "signs_requests")),
    ),
}
_SIGN_IN_FIELDS = ("is_active", "creates_people", "requires_verified_email", "trusts_email")
_CLAIMS = (
    *("claim_id", "claim_email", "claim_name", "claim_given_name", "claim_family_name"),
    "claim_picture",
)
# What forms add to the help text of the column.
_MORE = {
    "claim_email": (
        "Providers report verification of email only; for another claim see “its addresses "
        "count as verified”."
    ),
}
_GROUPS = ("syncs_groups", "claim_groups", "mapping")


class ProviderForm(PageForm):
    """A provider's settings; services validate them, and the form shows their errors."""

    def __init__(self, *args: Any, row: IdentityProvider, pairs: Iterable[str], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.row = row
        for name in FIELDS[row.protocol]:
            if name != "metadata":
                self.fields[name] = _field_of(name)
                self.initial[name] = getattr(row, name)
        if row.protocol == Protocol.OIDC:
            self.fields["client_secret"] = _secret()
            self.initial["client_secret"] = HIDDEN if row.client_secret_sealed else ""
        else:
            self.fields["metadata_file"] = _metadata(has_one=bool(row.metadata))
        self.fields["mapping"] = _mapping()
        self.initial["mapping"] = "\n".join(pairs)

    def clean_mapping(self) -> Pairs:
        """Lines of `their group = our group`."""
        known = {group.name.lower(): group for group in Group.objects.exclude(name=USERS)}
        pairs: Pairs = []
        for line in filter(None, map(str.strip, self.cleaned_data["mapping"].splitlines())):
            theirs, equals, ours = (part.strip() for part in line.rpartition("="))
            group = known.get(ours.lower())
            if not equals or not theirs:
                raise forms.ValidationError(
                    "“%(line)s”: write their group = our group.", params={"line": line}
                )
            if group is None:
                raise forms.ValidationError(
                    "“%(name)s” is not a group here that people can join.", params={"name": ours}
                )
            pairs.append((theirs, group))
        return pairs

    def clean_metadata_file(self) -> str | None:
        """The text of the file; None where none was chosen."""
        given = self.cleaned_data["metadata_file"]
        if given is None:
            return None
        if given.size > MOST_METADATA:
            raise forms.ValidationError("This file is too large to be metadata.")
        try:
            text: str = given.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise forms.ValidationError("This is not an XML file in UTF-8.") from error
        return text

    def values(self) -> dict[str, Any]:
        """What the services take, without the mapping."""
        given = {k: v for k, v in self.cleaned_data.items() if k != "mapping"}
        metadata = given.pop("metadata_file", None)
        if metadata is not None:
            given["metadata"] = metadata
        return given

    def parts(self) -> list[tuple[Any, list[forms.BoundField]]]:
        """Headings and the fields below them."""
        parts = (
            *_PARTS[self.row.protocol],
            ("Who can sign in", _SIGN_IN_FIELDS),
            ("Claims", _CLAIMS),
            ("Groups", _GROUPS),
        )
        return [(title, [self[name] for name in names]) for title, names in parts]


class LogInRulesForm(PageForm):
    """Passwords and second factors."""

    allows_passwords = forms.BooleanField(
        label="People may log in with a password",
        required=False,
        help_text=(
            "Off: only with an identity provider, and the one administrator below. Open "
            "sessions stay."
        ),
    )
    break_glass = forms.ModelChoiceField(
        label="Break-glass administrator",
        queryset=User.objects.none(),
        required=False,
        empty_label="Nobody",
        help_text=(
            "Can still log in with a password, for the day when the provider does not. Stays "
            "active and an administrator until another one is chosen."
        ),
    )
    requires_second_factor = forms.BooleanField(
        label="Everybody with a password needs a second factor",
        required=False,
        help_text="People without one set it up at the next sign-in, before anything else.",
    )
    second_factor_groups = forms.ModelMultipleChoiceField(
        label="Groups that need one anyway",
        queryset=Group.objects.order_by("name"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Their members need a second factor even where others do not.",
    )

    def __init__(self, *args: Any, rules: LogInRules, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people = User.objects.filter(groups__name=ADMINS, is_active=True, is_service=False)
        choice = self.fields["break_glass"]
        assert isinstance(choice, forms.ModelChoiceField)  # noqa: S101  # for the type
        choice.queryset = people.order_by("username")
        groups = rules.second_factor_groups.values_list("pk", flat=True)
        self.initial.update(
            allows_passwords=rules.allows_passwords,
            break_glass=rules.break_glass_id,
            requires_second_factor=rules.requires_second_factor,
            second_factor_groups=list(groups),
        )


def preset_choices() -> list[tuple[str, list[ProviderPreset]]]:
    """The presets by protocol, in the order in which they are offered."""
    return [
        (protocol.label, [one for one in PRESETS.values() if one.protocol == protocol])
        for protocol in Protocol
    ]


def _field_of(name: str) -> forms.Field:
    """The field as the model describes it; what is required depends on others, so services say."""
    made = IdentityProvider._meta.get_field(name).formfield()  # type: ignore[union-attr]  # columns only
    assert isinstance(made, forms.Field)  # noqa: S101  # for the type
    made.required = name in {"name", "pkce", "client_id", "claim_id"}
    if name in _MORE:
        made.help_text = f"{made.help_text} {_MORE[name]}"
    if isinstance(made, forms.CharField):
        made.widget.attrs |= _PLAIN
    return made


def _secret() -> forms.CharField:
    return forms.CharField(
        label="Client secret",
        required=False,
        strip=True,
        max_length=1000,
        widget=forms.PasswordInput(render_value=True, attrs={"autocomplete": "new-password"}),
        help_text="Kept sealed and never shown again; ******** keeps the one there is.",
    )


def _metadata(*, has_one: bool) -> forms.FileField:
    words = "The one there is stays, unless you choose another." if has_one else ""
    text = IdentityProvider._meta.get_field("metadata").help_text
    return forms.FileField(
        label="Metadata file",
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput(attrs={"accept": ".xml,text/xml,application/xml"}),
        help_text=f"{text} {words}",
    )


def _mapping() -> forms.CharField:
    return forms.CharField(
        label="Their groups and ours",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 4, "placeholder": "ml-platform = dev", **_MONO}),
        help_text=(
            "One pair a line: their group = our group. Membership of these groups changes by "
            "sign-in only; the last administrator and the break-glass one stay."
        ),
    )
