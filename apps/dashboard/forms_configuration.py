"""Forms for pools, queues, nodes and the whole configuration."""

from collections.abc import Collection
from typing import Any, ClassVar

from django import forms

from apps.dashboard.forms_base import ConflictCheckForm, PageForm
from apps.policies.models import Queue

LONGEST_YAML = 2 * 1024 * 1024


class PauseForm(PageForm):
    """Why something is paused; everybody who waits reads it."""

    reason = forms.CharField(
        label="Reason",
        required=False,
        max_length=500,
        help_text="Owners of waiting tasks read this.",
        widget=forms.TextInput(attrs={"autofocus": True, "placeholder": "maintenance until 4"}),
    )


class ImportForm(PageForm):
    """A document as YAML, as a file or as text."""

    file = forms.FileField(label="File", required=False, allow_empty_file=True)
    text = forms.CharField(
        label="Or its text",
        required=False,
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 10, "spellcheck": "false", "autocapitalize": "off"},
        ),
    )
    version = forms.IntegerField(widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """One text, from wherever it came."""
        given: dict[str, Any] = super().clean() or {}
        upload = given.get("file")
        if upload:
            if upload.size > LONGEST_YAML:
                self.add_error("file", "The file is too large to be a configuration.")
                return given
            try:
                given["text"] = upload.read().decode()
            except UnicodeDecodeError:
                self.add_error("file", "The file is not UTF-8 text.")
                return given
        if not given.get("text", "").strip():
            self.add_error("text", "Choose a file or put the text here.")
        return given


class QueueForm(ConflictCheckForm):
    """Settings of a queue, in the words of its columns; the service judges them."""

    LABELS: ClassVar = {
        "name": "Name",
        "allow_over_quota": "Over quota",
        "allow_streams": "Streams into tasks",
        "on_preemption": "When preempted, a task should",
        "on_node_loss": "When its node is lost, a task should",
        "min_runtime_s": "Protected for, in seconds",
        "max_preemptions": "Preempted at most",
        "grace_s": "Time to stop, in seconds",
        "max_priority": "Highest priority",
        "max_waiting": "Waiting tasks per user",
        "idle_warn_minutes": "Warn idle tasks after, in minutes",
        "idle_stop_minutes": "Stop idle tasks after, in minutes",
    }

    def __init__(self, data: Any = None, *, queue: Queue, names: Collection[str]) -> None:
        known = [name for name in self.LABELS if name in names]
        super().__init__(data, initial=forms.model_to_dict(queue, fields=known))
        fields = forms.fields_for_model(Queue, fields=known)
        for name, field in fields.items():
            field.label = self.LABELS[name]
            # What the form was filled with, so that what others changed meanwhile is noticed.
            field.show_hidden_initial = True
        self.fields.update(fields)


class QueueChoiceForm(PageForm):
    """Another queue for a waiting task."""

    queue = forms.ChoiceField(label="Queue")

    def __init__(self, *args: Any, queues: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["queue"] = forms.ChoiceField(
            label="Queue",
            choices=[(q.pk, f"{q.name}: {q.profile.name}, {q.policy.name}") for q in queues],
        )
