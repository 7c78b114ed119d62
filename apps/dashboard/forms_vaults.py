"""Forms for vaults; the service validates them."""

from typing import Any

from django import forms
from django.contrib.auth.models import Group

from apps.access.vaults import vault_permissions
from apps.accounts.models import User
from apps.accounts.selectors import groups_visible_to, manages_people
from apps.dashboard.forms_base import PageForm
from apps.vaults.models import NAME_LENGTH, Vault, VaultFormat
from apps.vaults.text.bounds import TEXT_BYTES


class VaultForm(PageForm):
    """A vault with its text, typed or from a file; `version` is the one that was read."""

    name = forms.CharField(
        label="Name",
        max_length=NAME_LENGTH,
        widget=forms.TextInput(attrs={"placeholder": "training defaults"}),
    )
    group = forms.ModelChoiceField(
        label="For",
        queryset=Group.objects.none(),
        required=False,
        empty_label="My own tasks",
        help_text="Tasks of everybody in the group get it, above their own vaults.",
    )
    format = forms.ChoiceField(
        label="Format",
        choices=VaultFormat.choices,
        help_text="Includes, types and variables of the environment are not read.",
    )
    text = forms.CharField(
        label="Text",
        required=False,
        strip=False,
        help_text=(
            "environment: variables. container: image, command and working_dir for tasks that name "
            "none. secrets: names and texts, which nobody reads again; stars stay what they are. "
            "Everything else comes as a file that RPM_VAULT_FILE names."
        ),
        widget=forms.Textarea(
            attrs={
                "rows": 18,
                "spellcheck": "false",
                "autocapitalize": "off",
                "autocomplete": "off",
                "data-text": True,
            }
        ),
    )
    file = forms.FileField(
        label="Import a file",
        required=False,
        allow_empty_file=True,
        help_text="It replaces the text above.",
    )
    enforced = forms.CharField(
        label="Enforced entries",
        required=False,
        help_text=(
            "One path a line, such as environment.HTTPS_PROXY: it wins over all other vaults and "
            "over the task itself. A star enforces everything."
        ),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocapitalize": "off"}),
    )
    is_active = forms.BooleanField(
        label="Use it",
        required=False,
        help_text="Tasks that start from now on get it. Keep it off while you work on it.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, user: User, vault: Vault | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        is_people_manager = manages_people(user)
        may_enforce = is_people_manager if vault is None else vault_permissions(user, vault).enforce
        if not may_enforce:
            del self.fields["enforced"]
        if vault is not None or not is_people_manager:
            del self.fields["group"]
        else:
            groups: Any = self.fields["group"]
            groups.queryset = groups_visible_to(user).order_by("name")

    def clean(self) -> dict[str, Any]:
        """One text, from wherever it came."""
        given: dict[str, Any] = super().clean() or {}
        upload = given.pop("file", None)
        if upload is not None and upload.size > TEXT_BYTES:
            self.add_error("file", "The file is too large for a vault.")
        elif upload is not None:
            try:
                given["text"] = upload.read().decode("utf-8-sig")
            except UnicodeDecodeError:
                self.add_error("file", "The file is not UTF-8 text.")
        # Browsers send line ends of their own.
        given["text"] = given.get("text", "").replace("\r\n", "\n")
        return given

    def changes(self) -> dict[str, Any]:
        """What the services take."""
        given = self.cleaned_data
        changes = {name: given[name] for name in ("name", "format", "text")}
        if "enforced" in self.fields:
            changes["enforced"] = given["enforced"].splitlines()
        return changes
