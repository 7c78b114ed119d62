"""Filters of REST lists that several apps use."""

from typing import Any

from django_filters.rest_framework import NumberFilter


def id_filter(column: str) -> Any:
    """Rows whose `column` is an id; numbers that no id can be are refused."""
    return NumberFilter(field_name=column, min_value=0, max_value=2**62, decimal_places=0)
