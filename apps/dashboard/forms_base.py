"""Forms that change what others may be changing, too."""

from typing import Any

from django import forms


class PageForm(forms.Form):
    """Says of which field a value is missing: its errors may be read apart from the fields."""

    def add_error(self, field: str | None, error: Any) -> None:
        """As Django does, with the label in place of “This field”."""
        if field in self.fields and getattr(error, "code", "") == "required":
            chosen = (forms.ChoiceField, forms.ModelChoiceField, forms.FileField)
            verb = "Choose" if isinstance(self.fields[field], chosen) else "Enter"
            error = f"{verb} a value for “{self[field].label}”."
        super().add_error(field, error)


class ConflictCheckForm(PageForm):
    """Remembers its initial values, and rejects a field that another user changed meanwhile.

    `initial` is the row as it is by now; a field is of interest where `show_hidden_initial` is.
    """

    def clean(self) -> dict[str, Any]:
        """The values; a field that another user changed meanwhile has to be sent again."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        for name in self._changed_by_others():
            self.add_error(name, f"It was changed to this meanwhile: {self._text(name)}")
        return given

    def _changed_by_others(self) -> list[str]:
        """Fields that both this user and another one changed, to different values."""
        found = []
        data = {name: self.data[name] for name in self.data}
        for name in self.changed_data:
            field = self[name]
            typed, shown = (
                _same_lines(self.data.get(one, ""))
                for one in (field.html_name, field.html_initial_name)
            )
            now = _same_lines(self._now(name))
            if field.html_initial_name in self.data and now not in {shown, typed}:
                found.append(name)
                # The user sees the new value and may send the form again.
                data[field.html_initial_name] = now
        self.data = data
        return found

    def _now(self, name: str) -> str:
        """What the field shows for the row as it is by now."""
        value = self.fields[name].prepare_value(self.initial.get(name))
        return "" if value is None else str(value)

    def _text(self, name: str) -> str:
        """The same in words."""
        field, now = self.fields[name], self._now(name)
        if isinstance(field, forms.BooleanField):
            return "yes" if now == "True" else "no"
        if isinstance(field, forms.ChoiceField | forms.ModelChoiceField):
            choices = getattr(field.widget, "choices", ())
            return next((str(label) for value, label in choices if str(value) == now), now)
        return now or "nothing"


def _same_lines(text: str) -> str:
    """Browsers send line ends of their own."""
    return text.replace("\r\n", "\n").strip()
