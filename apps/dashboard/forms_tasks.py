"""The forms of tasks: a new one, and a draft."""

import shlex
from collections.abc import Mapping
from math import ceil
from typing import Any

from django import forms

from apps.access.selectors import queues_open_to
from apps.accounts.models import User
from apps.allocation.whatif.queue_starts import MOST_QUEUES
from apps.core.containers import CALLBACK_S
from apps.core.errors import RpmError
from apps.core.keyring import HIDDEN
from apps.dashboard.after_field import AfterField
from apps.dashboard.forms import add_errors
from apps.dashboard.forms_base import PageForm
from apps.dashboard.forms_priority import PriorityHint, priority_field, priority_words
from apps.tasks.models import Task
from apps.tasks.redaction import hide_values, keep_hidden_values, redact
from apps.tasks.selectors.secrets import task_secrets
from apps.tasks.task_spec import ARRAY, REPLICAS, RETRIES, VOLUME_LENGTH, TaskSpec, spec_of

_MONO = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocapitalize": "off"})


class TextField(forms.CharField):
    """Several lines; browsers send line ends of their own."""

    widget = _MONO

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value)).replace("\r\n", "\n").replace("\r", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether the user changed it; a browser also changes the line ends of what it was sent."""
        return super().has_changed(self.to_python(initial), data)


# The form's fields for each field of `TaskSpec`: what is missing here is set by REST alone.
FORM_FIELDS: Mapping[str, tuple[str, ...]] = {
    "name": ("name",),
    "queue": ("queue",),
    "image": ("image",),
    "command": ("command",),
    "environment": ("environment",),
    "secrets": ("secrets",),
    "working_dir": ("working_dir",),
    "request": ("gpu", "amounts"),
    "replicas": ("replicas",),
    "volumes": ("volumes",),
    "priority": ("priority",),
    "is_preemptible": ("is_preemptible",),
    "is_restartable": ("is_restartable",),
    "time_limit_s": ("time_limit_min",),
    "retries": ("retries",),
    "checkpoint_volume": ("checkpoint_volume",),
    "abort_callback": ("abort_script", "abort_language", "abort_timeout_s"),
    "tags": ("tags",),
    "hold": ("hold",),
    "array": ("array_size", "array_limit"),
    "after": ("after",),
}
# Below *More*, in the order of the page.
MORE = (
    *("working_dir", "amounts", "replicas", "volumes", "checkpoint_volume", "retries", "hold"),
    *("is_restartable", "secrets", "abort_script", "abort_language", "abort_timeout_s", "tags"),
    *("array_size", "array_limit", "after"),
)
_PLAIN = {"spellcheck": "false", "autocapitalize": "off"}


class TaskForm(PageForm):
    """A task as its owner describes it; without a queue it can only be a draft."""

    name = forms.CharField(label="Name", max_length=200)
    queue = forms.ChoiceField(label="Queue", required=False)
    image = forms.CharField(
        label="Image",
        required=False,
        max_length=500,
        help_text="As the nodes pull it, with its tag.",
        widget=forms.TextInput(attrs={**_PLAIN, "list": "images", "autocomplete": "off"}),
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
    gpu = forms.CharField(
        label="GPUs",
        required=False,
        max_length=32,
        help_text="Only where the profile lets a task bring its own request.",
    )
    priority = priority_field(required=False, initial=0)
    time_limit_min = forms.IntegerField(
        label="Time limit in minutes", required=False, min_value=1, max_value=500_000
    )
    is_preemptible = forms.BooleanField(
        label="Preemptible",
        required=False,
        initial=True,
        help_text="May be stopped when a team needs its reservation, and starts again later.",
    )
    working_dir = forms.CharField(label="Working directory", required=False, max_length=500)
    amounts = TextField(
        label="Other amounts",
        required=False,
        help_text="One key=amount per line, such as cpu=8; only in dynamic profiles.",
    )
    replicas = forms.IntegerField(
        label="Members",
        required=False,
        min_value=1,
        max_value=REPLICAS,
        help_text="Members that start together, each with the whole request.",
    )
    volumes = TextField(label="Volumes", required=False, help_text="One name per line.")
    checkpoint_volume = forms.CharField(
        label="Checkpoint volume",
        required=False,
        max_length=VOLUME_LENGTH,
        help_text="Volume on which the task finds its checkpoints again.",
    )
    retries = forms.IntegerField(
        label="Retries",
        required=False,
        min_value=0,
        max_value=RETRIES,
        help_text="How often it starts again after it failed.",
    )
    is_restartable = forms.BooleanField(
        label="Restartable",
        required=False,
        initial=True,
        help_text="Starts again after a preemption or the loss of its node; otherwise it ends.",
    )
    secrets = TextField(
        label="Secrets",
        required=False,
        strip=False,
        help_text="One NAME=value per line. Each is a file in the container; NAME_FILE holds its "
        "path. Never shown again.",
    )
    abort_script = TextField(
        label="Script before it is stopped",
        required=False,
        strip=False,
        help_text="Runs inside the container, before the task is asked to end.",
    )
    abort_language = forms.ChoiceField(
        label="Language of the script", required=False, choices=[("bash", "bash"), ("python",) * 2]
    )
    abort_timeout_s = forms.IntegerField(
        label="Seconds for the script", required=False, min_value=1, max_value=CALLBACK_S
    )
    tags = TextField(label="Tags", required=False, help_text="One per line.")
    hold = forms.BooleanField(label="On hold", required=False, help_text="Until it is released.")
    array_size = forms.IntegerField(
        label="Elements of an array",
        required=False,
        min_value=1,
        max_value=ARRAY,
        help_text="Equal tasks, each with its RPM_ARRAY_INDEX, from 0. Empty: one task.",
    )
    array_limit = forms.IntegerField(
        label="Elements at once",
        required=False,
        min_value=1,
        max_value=ARRAY,
        help_text="Empty: as many as can run.",
    )
    after = AfterField()

    def __init__(self, *args: Any, user: User, source: Task | None = None, **kwargs: Any) -> None:
        """`source` is the user's own task whose hidden values stay as they are."""
        super().__init__(*args, **kwargs)
        self.source = source
        queues = list(queues_open_to(user).select_related("policy", "profile").order_by("name"))
        self.fields["queue"] = forms.ChoiceField(
            label="Queue",
            required=False,
            choices=[
                ("", "None yet: keep it as a draft"),
                *((q.name, f"{q.name}: {q.profile.name}, {q.policy.name}") for q in queues),
            ],
        )
        self.queues = queues
        self.has_queue_cards = len(queues) <= MOST_QUEUES
        # A field that is read is kept: not before it is replaced.
        chosen = self["queue"].value()
        self.priority_hints = [
            PriorityHint(name, priority_words(queue), is_shown=name == (chosen or ""))
            for name, queue in [("", None), *((q.name, q) for q in queues)]
        ]

    def explain_hidden_values(self) -> None:
        """Say at the fields of variables what a hidden value does, where there is one."""
        for name in ("environment", "secrets"):
            if HIDDEN in _pairs(str(self.initial.get(name, ""))).values():
                words = f"One NAME=value per line; a hidden value ({HIDDEN}) stays as it is."
                self.fields[name].help_text = words

    @property
    def more(self) -> list[forms.BoundField]:
        """The fields below *More*."""
        return [self[name] for name in MORE if name in self.fields]

    @property
    def is_more_open(self) -> bool:
        """Whether something below *More* has a value or an error."""
        return any(one.errors or self._is_set(one.name) for one in self.more)

    def _is_set(self, name: str) -> bool:
        plain = {"is_restartable": True, "abort_language": "bash", "abort_timeout_s": 60}
        value = self[name].value()
        return value not in {None, "", "0", 0} and str(value) != str(plain.get(name, ""))

    def clean_command(self) -> list[str]:
        try:
            return shlex.split(self.cleaned_data["command"])
        except ValueError as problem:
            raise forms.ValidationError(f"Cannot be read: {problem}") from problem

    def clean_environment(self) -> dict[str, str]:
        """Lines of NAME=value."""
        return _pairs(self.cleaned_data["environment"])

    def clean_secrets(self) -> dict[str, str]:
        """As those of the environment."""
        return _pairs(self.cleaned_data["secrets"])

    def clean_amounts(self) -> dict[str, str]:
        """Lines of key=amount; GPUs have a field of their own."""
        pairs = _pairs(self.cleaned_data["amounts"])
        if "gpu" in pairs:
            raise forms.ValidationError("Enter the number of GPUs in the field “GPUs”.")
        return {key: amount.strip() for key, amount in pairs.items()}

    def clean_volumes(self) -> list[str]:
        return _lines(self.cleaned_data["volumes"])

    def clean_tags(self) -> list[str]:
        return _lines(self.cleaned_data["tags"])

    def values(self) -> dict[str, Any]:
        """Fields of `TaskSpec`, without the queue."""
        given = self.cleaned_data
        minutes = given["time_limit_min"]
        names = set(FORM_FIELDS) & set(given) - {"queue"}
        return {
            **{name: given[name] for name in names},
            **self._variables(),
            "priority": given["priority"] or 0,
            "retries": given["retries"] or 0,
            "request": self.request_values(),
            "time_limit_s": minutes * 60 if minutes else None,
            "abort_callback": self._callback_values(),
            "array": self._array_values(),
        }

    def _variables(self) -> dict[str, dict[str, str]]:
        """A copy has the values of its source wherever the form shows that one is hidden."""
        given = {name: self.cleaned_data[name] for name in ("environment", "secrets")}
        if self.source is None:
            return given
        stored = {
            "environment": self.source.spec.environment,
            "secrets": task_secrets(self.source),
        }
        return {name: keep_hidden_values(values, stored[name]) for name, values in given.items()}

    def request_values(self) -> dict[str, str] | str | None:
        """Of each member; None: as the profile says."""
        gpu, amounts = self.cleaned_data["gpu"], self.cleaned_data["amounts"]
        if not amounts:
            return gpu or None
        return {**({"gpu": gpu} if gpu else {}), **amounts}

    def _callback_values(self) -> dict[str, Any] | None:
        given = self.cleaned_data
        if not given["abort_script"].strip():
            return None
        return {
            "script": given["abort_script"],
            "language": given["abort_language"] or "bash",
            "timeout_s": given["abort_timeout_s"] or 60,
        }

    def _array_values(self) -> dict[str, int] | None:
        given = {"size": "array_size", "limit": "array_limit"}
        array = {name: self.cleaned_data[field] for name, field in given.items()}
        return {name: value for name, value in array.items() if value} or None

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
        initial = {**task_values(task), "version": task.changed_at.isoformat()}
        super().__init__(data, initial=initial, user=user)
        del self.fields["queue"], self.fields["after"]
        self.priority_hints = [PriorityHint("", priority_words(None), is_shown=True)]
        self.explain_hidden_values()

    def changes(self) -> dict[str, Any]:
        """The fields of `TaskSpec` that were changed here."""
        changed, values = set(self.changed_data), self.values()
        return {
            name: values[name]
            for name, fields in FORM_FIELDS.items()
            if name in values and changed.intersection(fields)
        }

    @property
    def is_stale(self) -> bool:
        """Whether the draft was changed since this form was opened."""
        return bool(self.cleaned_data["version"] != self.initial["version"])


def task_values(task: Task) -> dict[str, Any]:
    """What the form shows of a task: hidden values stay hidden."""
    spec, callback = task.spec, task.spec.abort_callback
    request = dict(task.request or {})
    values = {
        "name": spec.name,
        "image": spec.image,
        "command": shlex.join(spec.command),
        "environment": _text_of(redact(spec.environment, task.owner.redacted_variables)),
        "secrets": _text_of(hide_values(task.secrets)),
        "working_dir": spec.working_dir,
        "gpu": request.pop("gpu", ""),
        "amounts": _text_of(request),
        "replicas": spec.replicas,
        "volumes": "\n".join(spec.volumes),
        "priority": spec.priority,
        # A limit that is no whole number of minutes stays unless another is typed.
        "time_limit_min": ceil(spec.time_limit_s / 60) if spec.time_limit_s else None,
        "retries": spec.retries,
        "is_preemptible": spec.is_preemptible,
        "is_restartable": spec.is_restartable,
        "checkpoint_volume": spec.checkpoint_volume,
        "tags": "\n".join(spec.tags),
        "hold": spec.hold,
    }
    # A copy of an element is a task of its own.
    if spec.array is not None and task.array_id is None:
        values |= {"array_size": spec.array.size, "array_limit": spec.array.limit}
    if callback is not None:
        values |= {"abort_script": callback.script, "abort_language": callback.language}
        values["abort_timeout_s"] = callback.timeout_s
    return values


def _text_of(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            # Not the line itself: it may be part of a secret.
            raise forms.ValidationError(f"Line {number}: write NAME=value.")
        pairs[name.strip()] = value
    return pairs
