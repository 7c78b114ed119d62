"""The parts of the OpenAPI file that all operations share."""

from typing import Any

_METHODS = frozenset({"get", "post", "put", "patch", "delete"})
_ERROR = {"schema": {"$ref": "#/components/schemas/Error"}}
# The largest values of columns in PostgreSQL and SQLite: they differ, and are not rules of RPM.
_RANGES = frozenset({-(2**63), -(2**31), 2**31 - 1, 2**63 - 1})
_WORDS = "What was asked for cannot be done; `fields` says what would be right."


def blank_texts(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """An e-mail address in a response may be empty, as it is optional."""
    for schema in result["components"]["schemas"].values():
        for one in schema.get("properties", {}).values():
            if one.get("format") == "email" and one.get("readOnly"):
                del one["format"]
    return result


def without_ranges_of_columns(result: Any, **_: Any) -> Any:
    """The schema is the same whichever database serves it."""
    if isinstance(result, list):
        for one in result:
            without_ranges_of_columns(one)
    elif isinstance(result, dict):
        for name in ("minimum", "maximum"):
            if result.get(name) in _RANGES:
                del result[name]
                if result.get("format") == "int64":
                    del result["format"]
        for one in result.values():
            without_ranges_of_columns(one)
    return result


def errors_everywhere(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """All operations answer errors in one shape."""
    for operations in result["paths"].values():
        for method, operation in operations.items():
            if method in _METHODS:
                kinds = ["application/json"]
                if _may_be_yaml(operation):
                    kinds.append("application/yaml")
                response = {"content": dict.fromkeys(kinds, _ERROR), "description": _WORDS}
                operation["responses"].setdefault("4XX", response)
    return result


def _may_be_yaml(operation: dict[str, Any]) -> bool:
    """Where the reader chooses the format, errors come in it, too."""
    return any(
        one["name"] == "format" and "yaml" in one["schema"].get("enum", ())
        for one in operation.get("parameters", ())
    )
