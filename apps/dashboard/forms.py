"""Forms; services validate them, and each error is shown at its field."""

import shlex
from dataclasses import dataclass
from math import ceil
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm

from apps.access.selectors import queues_open_to
from apps.accounts.models import User
from apps.core.errors import RpmError
from apps.core.keyring import HIDDEN
from apps.dashboard.forms_base import ConflictCheckForm, PageForm
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.redaction import redact
from apps.tasks.task_spec import PRIORITY, TaskSpec, spec_of

_MONO = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocapitalize": "off"})


@dataclass(frozen=True, slots=True)
class PriorityHint:
    """What the field of the priority says while a queue is chosen."""

    queue: str
    words: str
    is_shown: bool


class SignInForm(PageForm, AuthenticationForm):
    """Name and password."""

    error_messages = {
        "invalid_login": "Username or password is wrong. Check both and try again.",
        "inactive": "Username or password is wrong. Check both and try again.",
    }

    def focus_password(self) -> None:
        """After a wrong try the name usually stays, and the password is typed again."""
        if self.data.get("username"):
            self.fields["username"].widget.attrs.pop("autofocus", None)
            self.fields["password"].widget.attrs["autofocus"] = True


class SetUpForm(PageForm):
    """The first administrator of an empty installation."""

    token = forms.CharField(
        label="Set-up token",
        help_text="Printed where RPM was started; it works once.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none"}),
    )
    email = forms.EmailField(label="E-mail address", required=False)
    password = forms.CharField(
        label="Password",
        strip=False,
        help_text="At least 8 characters, and no common word.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


def _priority_field(highest: int = PRIORITY, **given: Any) -> forms.IntegerField:
    words = f"Enter a whole number from {-PRIORITY} to {highest}."
    return forms.IntegerField(
        label="Priority",
        min_value=-PRIORITY,
        max_value=highest,
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), words),
        **given,
    )


class PriorityForm(ConflictCheckForm):
    """Another priority for a task, up to the highest one of its queue."""

    def __init__(self, data: Any = None, *, task: Task) -> None:
        super().__init__(data, initial={"priority": task.priority})
        self.fields["priority"] = _priority_field(
            PRIORITY if task.queue is None else task.queue.max_priority,
            widget=forms.NumberInput({"autofocus": True}),
            show_hidden_initial=True,
            help_text=priority_words(task.queue),
        )


class TextField(forms.CharField):
    """Several lines; browsers send line ends of their own."""

    widget = _MONO

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value)).replace("\r\n", "\n").replace("\r", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether the user changed it; a browser also changes the line ends of what it was sent."""
        return super().has_changed(self.to_python(initial), data)


class TaskForm(PageForm):
    """A task as its owner describes it; without a queue it can only be a draft."""

    name = forms.CharField(label="Name", max_length=200)
    queue = forms.ChoiceField(label="Queue", required=False)
    image = forms.CharField(
        label="Image",
        required=False,
        max_length=500,
        help_text="As the nodes pull it, with its tag.",
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocapitalize": "off"}),
    )
    command = TextField(
        label="Command",
        required=False,
        help_text="Program and arguments, quoted as in a shell; no shell runs it.",
    )
    environment = TextField(
        label="Environment",
        required=False,
        strip=False,
        help_text="One NAME=value per line.",
    )
    working_dir = forms.CharField(label="Working directory", required=False, max_length=500)
    gpu = forms.CharField(
        label="GPUs",
        required=False,
        max_length=32,
        help_text="Only where the profile lets a task bring its own request.",
    )
    priority = _priority_field(required=False, initial=0)
    time_limit_min = forms.IntegerField(
        label="Time limit in minutes", required=False, min_value=1, max_value=500_000
    )
    is_preemptible = forms.BooleanField(
        label="Preemptible",
        required=False,
        initial=True,
        help_text="May be stopped when a team needs its reservation, and starts again later.",
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        queues = list(queues_open_to(user).select_related("policy", "profile").order_by("name"))
        self.fields["queue"] = forms.ChoiceField(
            label="Queue",
            required=False,
            choices=[
                ("", "None yet: keep it as a draft"),
                *((q.name, f"{q.name}: {q.profile.name}, {q.policy.name}") for q in queues),
            ],
        )
        # A field that is read is kept: not before it is replaced.
        chosen = self["queue"].value()
        self.priority_hints = [
            PriorityHint(name, priority_words(queue), is_shown=name == (chosen or ""))
            for name, queue in [("", None), *((q.name, q) for q in queues)]
        ]

    def clean_command(self) -> list[str]:
        try:
            return shlex.split(self.cleaned_data["command"])
        except ValueError as problem:
            raise forms.ValidationError(f"Cannot be read: {problem}") from problem

    def clean_environment(self) -> dict[str, str]:
        """Lines of NAME=value; a line without `=` is a name with an empty value."""
        lines = [line for line in self.cleaned_data["environment"].split("\n") if line.strip()]
        pairs = (line.partition("=") for line in lines)
        return {name.strip(): value for name, _equals, value in pairs}

    def values(self) -> dict[str, Any]:
        """Fields of `TaskSpec`."""
        given = self.cleaned_data
        minutes = given["time_limit_min"]
        return {
            "name": given["name"],
            "image": given["image"],
            "command": given["command"],
            "environment": given["environment"],
            "working_dir": given["working_dir"],
            "priority": given["priority"] or 0,
            "is_preemptible": given["is_preemptible"],
            "request": given["gpu"] or None,
            "time_limit_s": minutes * 60 if minutes else None,
        }

    def spec(self) -> TaskSpec | None:
        """What the services take; None, with sentences at the fields, where it will not do."""
        try:
            return spec_of({**self.values(), "queue": self.cleaned_data["queue"] or None})
        except RpmError as error:
            add_errors(self, error)
        return None


class DraftForm(TaskForm):
    """Changes of a draft; its queue is chosen when it is enqueued."""

    version = forms.CharField(required=False, max_length=32, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, task: Task, user: User) -> None:
        spec, own = task.spec, task.owner.redacted_variables
        variables = redact(spec.environment, own).items()
        initial = {
            "name": spec.name,
            "image": spec.image,
            "command": shlex.join(spec.command),
            "environment": "\n".join(f"{name}={value}" for name, value in variables),
            "working_dir": spec.working_dir,
            "gpu": (task.request or {}).get("gpu", ""),
            "priority": spec.priority,
            # A limit that is no whole number of minutes stays unless another is typed.
            "time_limit_min": ceil(spec.time_limit_s / 60) if spec.time_limit_s else None,
            "is_preemptible": spec.is_preemptible,
            "version": task.changed_at.isoformat(),
        }
        super().__init__(data, initial=initial, user=user)
        del self.fields["queue"]
        self.priority_hints = [PriorityHint("", priority_words(None), is_shown=True)]
        if HIDDEN in dict(variables).values():
            words = f"One NAME=value per line; a hidden value ({HIDDEN}) stays as it is."
            self.fields["environment"].help_text = words
        self._request = task.request or {}

    def changes(self) -> dict[str, Any]:
        """The fields of `TaskSpec` that were changed here."""
        names = {"gpu": "request", "time_limit_min": "time_limit_s"}
        changed = {names.get(name, name) for name in self.changed_data}
        found = {name: value for name, value in self.values().items() if name in changed}
        if "request" in found:
            others = {key: amount for key, amount in self._request.items() if key != "gpu"}
            gpu = {"gpu": found["request"]} if found["request"] else {}
            found["request"] = {**others, **gpu} or None
        return found

    @property
    def is_stale(self) -> bool:
        """Whether the draft was changed since this form was opened."""
        return bool(self.cleaned_data["version"] != self.initial["version"])


def priority_words(queue: Queue | None) -> str:
    """What the field of a priority says about the queue; None: there is none yet."""
    if queue is None:
        return f"From {-PRIORITY} to what the queue allows. Higher priorities start first."
    return (
        f"From {-PRIORITY} to {queue.max_priority} in {queue.name}. Higher priorities start first."
    )


def focus_first_error(form: forms.Form) -> None:
    """Put the cursor where something has to be changed."""
    for name in form.fields:
        if name in form.errors:
            form.fields[name].widget.attrs["autofocus"] = True
            return


def add_errors(form: forms.Form, error: RpmError) -> None:
    """Show each error at the field that it names; others above the form."""
    near = {"request": "gpu", "time_limit_s": "time_limit_min", "metadata": "metadata_file"}
    near |= {"valid_from": "day"}
    is_placed = False
    for name, problem in error.fields.items():
        first = name.partition(".")[0]
        place = name if name in form.fields else near.get(first, first)
        if place in form.fields:
            form.add_error(place, problem[:1].upper() + problem[1:])
            is_placed = True
    if not is_placed:
        form.add_error(None, error.detail)
