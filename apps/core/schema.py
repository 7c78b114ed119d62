"""What the OpenAPI file says of every operation alike."""

from typing import Any

_METHODS = frozenset({"get", "post", "put", "patch", "delete"})
_ERROR = {"schema": {"$ref": "#/components/schemas/Error"}}
_WORDS = "What was asked for cannot be done; `fields` says what would be right."


def blank_texts(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """An e-mail address that is told may be empty: nobody has to give one."""
    for schema in result["components"]["schemas"].values():
        for one in schema.get("properties", {}).values():
            if one.get("format") == "email" and one.get("readOnly"):
                del one["format"]
    return result


def errors_everywhere(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """All operations answer errors in one shape."""
    for operations in result["paths"].values():
        for method, operation in operations.items():
            if method in _METHODS:
                kinds = ["application/json"]
                if _may_be_yaml(operation):
                    kinds.append("application/yaml")
                told = {"content": dict.fromkeys(kinds, _ERROR), "description": _WORDS}
                operation["responses"].setdefault("4XX", told)
    return result


def _may_be_yaml(operation: dict[str, Any]) -> bool:
    """Where the reader chooses the format, errors come in it, too."""
    return any(
        one["name"] == "format" and "yaml" in one["schema"].get("enum", ())
        for one in operation.get("parameters", ())
    )
