"""Forms for people, groups and your own account; services validate them."""

from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.contrib.auth.models import Group

from apps.accounts.models import USERS, User
from apps.accounts.selectors import accounts_visible_to, groups_visible_to, is_admin
from apps.accounts.services.invitations import DAYS, MOST_DAYS
from apps.dashboard.forms_base import PageForm

# A form in a dialog may share the page with a form that has the same fields.
DIALOG_ID = "dialog_%s"
_PLAIN = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class GroupsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # not at run time
    """Groups to choose from; everybody is in `Users` anyway."""

    def __init__(self, **given: Any) -> None:
        super().__init__(
            Group.objects.exclude(name=USERS).order_by("name"),
            required=False,
            widget=forms.CheckboxSelectMultiple,
            **given,
        )

    def offer_to(self, actor: User) -> None:
        """The groups that the user administers."""
        self.queryset = groups_visible_to(actor).exclude(name=USERS).order_by("name")


class InviteForm(PageForm):
    """The person to invite."""

    email = forms.CharField(
        label="E-mail address",
        required=False,
        max_length=254,
        help_text="The link goes there, where a mail server is set up.",
        widget=forms.EmailInput(attrs=_PLAIN),
    )
    username = forms.CharField(
        label="User name",
        required=False,
        max_length=150,
        help_text="Empty: the person chooses one.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    groups = GroupsField(label="Groups", help_text="They decide what the person may see and do.")
    days = forms.IntegerField(
        label="The link works for, in days",
        min_value=1,
        max_value=MOST_DAYS,
        initial=DAYS,
        help_text="After that, make another one.",
    )

    def __init__(self, *args: Any, actor: User, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **given})
        groups: GroupsField = self.fields["groups"]  # type: ignore[assignment]  # it is declared so
        groups.offer_to(actor)
        # Without it, people invited by a tenant administrator would belong to no tenant.
        groups.required = not is_admin(actor)


class PersonForm(PageForm):
    """A person's names, address and groups."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        help_text="What they sign in with; tasks and history follow the account, not the name.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    first_name = forms.CharField(label="First name", required=False, max_length=150)
    last_name = forms.CharField(label="Last name", required=False, max_length=150)
    email = forms.EmailField(
        label="E-mail address", required=False, max_length=254, widget=forms.EmailInput(_PLAIN)
    )
    groups = GroupsField(
        label="Groups",
        help_text="What changes here counts from the person's next request on.",
    )

    def __init__(self, *args: Any, actor: User, person: User, **given: Any) -> None:
        names = ("username", "first_name", "last_name", "email")
        initial = {name: getattr(person, name) for name in names}
        initial["groups"] = person.groups.all()
        super().__init__(*args, **{"auto_id": DIALOG_ID, "initial": initial, **given})
        groups: GroupsField = self.fields["groups"]  # type: ignore[assignment]  # it is declared so
        groups.offer_to(actor)


class TestMailForm(PageForm):
    """Where a test mail goes."""

    to = forms.EmailField(label="To", max_length=254, widget=forms.EmailInput(_PLAIN))


class JoinForm(PageForm):
    """Coming in by a link."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        help_text="What you sign in with. Letters, digits and @ . + - _",
        widget=forms.TextInput(attrs={**_PLAIN, "autocomplete": "username"}),
    )
    first_name = forms.CharField(
        label="First name",
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "given-name"}),
    )
    last_name = forms.CharField(
        label="Last name",
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "family-name"}),
    )
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=4096,
        help_text="At least 8 characters, and no common word.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, asks_name: bool, asks_who: bool, **given: Any) -> None:
        super().__init__(*args, **given)
        hidden = [] if asks_name else ["username"]
        hidden += [] if asks_who else ["first_name", "last_name"]
        for name in hidden:
            del self.fields[name]


class GroupForm(PageForm):
    """A group's name, and what it is for."""

    name = forms.CharField(label="Name", max_length=150, widget=forms.TextInput(attrs=_PLAIN))
    description = forms.CharField(
        label="Description",
        required=False,
        max_length=1000,
        help_text="Who belongs to it, and why.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def __init__(self, *args: Any, keeps_name: bool = False, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": DIALOG_ID, **given})
        if keeps_name:
            self.fields["name"].disabled = True
            self.fields["name"].help_text = "It is built in and keeps its name."


class ProfileForm(PageForm):
    """Name and preferences of your own account."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        help_text="What you sign in with. Tasks and history follow the account, not the name.",
        widget=forms.TextInput(attrs={**_PLAIN, "autocomplete": "username"}),
    )
    first_name = forms.CharField(
        label="First name",
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "given-name"}),
    )
    last_name = forms.CharField(
        label="Last name",
        required=False,
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "family-name"}),
    )
    time_zone = forms.ChoiceField(
        label="Time zone", required=False, help_text="All times are shown in it."
    )
    redacted_variables = forms.CharField(
        label="Variables to hide",
        required=False,
        max_length=26_000,
        help_text=(
            "One pattern per line, such as WANDB_*: values of such variables of your tasks are "
            "shown to nobody and masked in logs."
        ),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocapitalize": "off"}),
    )

    def __init__(self, *args: Any, user: User, **given: Any) -> None:
        initial = {
            "username": user.username,
            "first_name": user.first_name,
            "last_name": user.last_name,
            "time_zone": user.time_zone,
            "redacted_variables": "\n".join(user.redacted_variables),
        }
        given["initial"] = initial
        super().__init__(*args, **given)
        zones = [(name, name.replace("_", " ")) for name in sorted(available_timezones())]
        self.fields["time_zone"] = forms.ChoiceField(
            label=self.fields["time_zone"].label,
            required=False,
            help_text=self.fields["time_zone"].help_text,
            choices=[("", "That of the browser"), *zones],
        )


class AddressForm(PageForm):
    """A new e-mail address for your own account."""

    email = forms.EmailField(
        label="E-mail address",
        required=False,
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )
    current_password = forms.CharField(
        label="Your password",
        strip=False,
        max_length=4096,
        help_text="This protects your account while your screen is unlocked.",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": "address_%s", **given})


class PasswordForm(PageForm):
    """A new password for your own account."""

    current_password = forms.CharField(
        label="Current password",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new_password = forms.CharField(
        label="New password",
        strip=False,
        max_length=4096,
        help_text="At least 8 characters, and no common word.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **{"auto_id": "password_%s", **given})


def patterns_of(text: str) -> list[str]:
    """The lines of the field, for `preferences_change`."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def chosen_people(actor: User, given: list[str]) -> list[User]:
    """The people whose boxes were ticked, among those that `actor` sees."""
    ids = [int(one) for one in given if one.isascii() and one.isdigit() and len(one) < 19]
    return list(accounts_visible_to(actor).filter(pk__in=ids).order_by("username"))
