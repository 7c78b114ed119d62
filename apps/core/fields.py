"""Model fields for amounts."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from apps.core.errors import BadInput
from apps.core.units import quantities_text


class QuantitiesField(models.JSONField):
    """Amounts per resource key, stored as the checked texts that people typed.

    `{"gpu": "4", "memory_mb": "1/7"}`; `apps.core.units.quantities_milli` makes them numbers.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", dict)
        kwargs.setdefault("blank", True)
        super().__init__(*args, **kwargs)

    def to_python(self, value: Any) -> Any:
        if value is None or value == "":
            return None if self.null else {}
        try:
            return quantities_text(value, field=self.name or "amount", keys=None)
        except BadInput as error:
            raise ValidationError(error.detail) from error
