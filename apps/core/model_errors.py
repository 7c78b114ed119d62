"""Errors of `full_clean()` as RPM's errors; without DRF, which loads the views' defaults."""

from django.core.exceptions import ValidationError as ModelError

from apps.core.errors import BadInput, Conflict
from apps.core.models import NAME_TAKEN


def from_model_error(error: ModelError) -> BadInput | Conflict:
    """The messages of `full_clean()` per field; a conflict where only the name is in use."""
    if hasattr(error, "error_dict"):
        fields = {
            _field(name, messages): " ".join(messages)
            for name, messages in error.message_dict.items()
        }
    else:
        fields = {"detail": " ".join(error.messages)}
    sentence = " ".join(f"{k}: {v}" if k != "detail" else v for k, v in fields.items())
    if fields == {"name": str(NAME_TAKEN)}:
        return Conflict(sentence, fields=fields)
    return BadInput(sentence, fields=fields)


def _field(name: str, messages: list[str]) -> str:
    """The field of an error of the whole row, where its sentence says which."""
    if name != "__all__":
        return name
    return "name" if messages == [str(NAME_TAKEN)] else "detail"
