"""The field for the tasks that a new one waits for."""

from typing import Any

from django import forms


class AfterField(forms.CharField):
    """Ids, one per line, each with how that task has to end where it need not complete."""

    def __init__(self) -> None:
        super().__init__(
            label="After",
            required=False,
            help_text="It starts after these tasks: one id per line, with :any if the task need "
            "only end, or :failed if it has to fail.",
            widget=forms.Textarea(
                attrs={"rows": 3, "spellcheck": "false", "autocapitalize": "off"}
            ),
        )

    def clean(self, value: Any) -> list[dict[str, str]]:
        """As `TaskSpec` takes them."""
        lines = [line.strip() for line in super().clean(value).splitlines() if line.strip()]
        parts = [line.partition(":") for line in lines]
        return [
            {"task": task.strip(), "when": when.strip() or "ok"} for task, _colon, when in parts
        ]
