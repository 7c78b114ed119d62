"""Forms of nodes; services validate what is filled in."""

from typing import Any
from uuid import UUID

from django import forms

from apps.access.selectors import pools_visible_to
from apps.accounts.models import User
from apps.core.errors import RpmError
from apps.core.units import quantities_text
from apps.dashboard.forms_base import ConflictCheckForm, PageForm
from apps.execution.services.node_keys import node_key_path
from apps.nodes.models import Node, Runtime, Transport
from apps.policies.models import Pool

SHARED = "is_shared_machine"
_PLAIN = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
_LONGEST_TEXT = 10_000
# Only nodes over SSH have these.
_CONNECTION = ("address", "port", "user", "key", "runtime", "state_dir")


class NodeForm(ConflictCheckForm):
    """A node as an administrator describes it. The key is a file in the server's folder."""

    name = forms.CharField(label="Name", max_length=120, widget=forms.TextInput(attrs=_PLAIN))
    pool = forms.ModelChoiceField(
        Pool.objects.none(),
        label="Pool",
        required=False,
        empty_label="No pool yet",
        help_text="A node without a pool takes no tasks until it has one.",
    )
    address = forms.RegexField(
        r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$",
        label="Address",
        error_messages={"invalid": "Enter a host name or an IP address."},
        widget=forms.TextInput(attrs=_PLAIN),
    )
    port = forms.IntegerField(label="SSH port", min_value=1, max_value=65535, initial=22)
    user = forms.CharField(
        label="Account", max_length=64, initial="rpm-node", widget=forms.TextInput(attrs=_PLAIN)
    )
    key = forms.CharField(
        label="Private key",
        max_length=120,
        help_text="The name of its file in RPM_HOME on the server.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    runtime = forms.ChoiceField(label="Runtime", choices=Runtime.choices)
    state_dir = forms.CharField(
        label="State folder",
        max_length=500,
        required=False,
        help_text="For the helper's files. A machine prepared with the script needs none here.",
        widget=forms.TextInput(attrs=_PLAIN),
    )
    labels = forms.CharField(
        label="Labels",
        required=False,
        max_length=_LONGEST_TEXT,
        help_text="One name=value per line.",
        widget=forms.Textarea(attrs={"rows": 2, **_PLAIN}),
    )
    capacity_cap = forms.CharField(
        label="Capacity limit",
        required=False,
        max_length=_LONGEST_TEXT,
        help_text="One key=amount per line; the system keeps the rest. Empty: no limit.",
        widget=forms.Textarea(attrs={"rows": 2, **_PLAIN}),
    )
    allows_process = forms.BooleanField(
        label="Allow plain processes",
        required=False,
        help_text="Tasks may run without a container and without isolation.",
    )

    is_shared_machine = forms.BooleanField(
        label="Share the machine with the other node",
        required=False,
        help_text="Both nodes give out its CPU and memory.",
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        pools: Any = self.fields["pool"]
        pools.queryset = pools_visible_to(user)

    def clean_labels(self) -> dict[str, str]:
        return _pairs(self.cleaned_data["labels"])

    def clean_capacity_cap(self) -> dict[str, str]:
        texts = _pairs(self.cleaned_data["capacity_cap"])
        try:
            return quantities_text(texts, field="capacity_cap", keys=None)
        except RpmError as error:
            raise forms.ValidationError(error.detail) from error

    def hide_sharing_unless_needed(self) -> None:
        """Show the box only where a machine was refused for it, or where it is ticked."""
        if SHARED not in self.errors and not self[SHARED].value():
            del self.fields[SHARED]

    def columns(self) -> dict[str, Any]:
        """Columns of the node, and whether another node's machine may be its own, too.

        Raises:
            BadInput: the server has no such private key.
        """
        values = dict(self.cleaned_data)
        key = values.pop("key", "")
        return values | ({"key_path": node_key_path(key)} if key else {})


class NodeEditForm(NodeForm):
    """An empty key keeps the one that the node has."""

    def __init__(self, *args: Any, node: Node, **kwargs: Any) -> None:
        names = ("name", "pool", "address", "port", "user", "runtime", "state_dir")
        initial = {name: getattr(node, name) for name in (*names, "allows_process")}
        initial |= {"labels": _lines(node.labels), "capacity_cap": _lines(node.capacity_cap)}
        super().__init__(*args, initial=initial, **kwargs)
        del self.fields[SHARED]
        self.fields["key"].required = False
        self.fields["key"].help_text = "The name of a file in RPM_HOME. Empty: keep the key."
        if node.transport != Transport.SSH:
            for name in _CONNECTION:
                del self.fields[name]
        for field in self.fields.values():
            field.show_hidden_initial = True


class RekeyForm(PageForm):
    """The fingerprint that the administrator compared, and what became of the machine."""

    fingerprint = forms.RegexField(
        r"^SHA256:[A-Za-z0-9+/]{43}$",
        widget=forms.HiddenInput,
        error_messages={"invalid": "This is not a fingerprint of a host key."},
    )
    is_replaced = forms.BooleanField(
        label="The machine was set up again, or is another one",
        required=False,
        help_text="Tasks of the old machine are lost, and their queues decide what follows.",
    )
    reason = forms.CharField(
        label="Reason",
        required=False,
        max_length=500,
        help_text="Only for a replaced machine that had tasks: why none of them runs any more.",
    )


class NodeRemoveForm(PageForm):
    """Whether the removal stops tasks, and why a silent machine is certainly off."""

    force = forms.BooleanField(label="Stop these tasks, then remove the node", required=False)
    # Ids of the tasks that the dialog named, separated by spaces.
    shown = forms.CharField(required=False, widget=forms.HiddenInput)
    reason = forms.CharField(
        label="Reason",
        required=False,
        max_length=500,
        help_text="Needed because the node does not answer: why the machine is certainly off.",
    )

    def clean_shown(self) -> set[UUID]:
        try:
            return {UUID(one) for one in self.cleaned_data["shown"].split()}
        except ValueError as error:
            raise forms.ValidationError("These are not ids of tasks.") from error

    def clear_confirmation(self) -> None:
        """The list changed: the administrator agreed to another one."""
        data = {name: self.data[name] for name in self.data}
        data.pop("force", None)
        self.data = data


def _pairs(text: str) -> dict[str, str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pairs = [[part.strip() for part in line.partition("=")] for line in lines]
    for line, (name, equals, value) in zip(lines, pairs, strict=True):
        if not name or not equals or len(value) > 200:  # as REST has it
            words = "Enter name=value with at most 200 characters in place of “%(line)s”."
            raise forms.ValidationError(words, params={"line": line[:80]})
    return {name: value for name, _equals, value in pairs}


def _lines(pairs: dict[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in sorted(pairs.items()))
