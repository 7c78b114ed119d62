"""What the OpenAPI file says of every operation alike."""

from typing import Any

_METHODS = frozenset({"get", "post", "put", "patch", "delete"})
_ERROR = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    "description": "What was asked for cannot be done; `fields` says what would be right.",
}


def errors_everywhere(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """All operations answer errors in one shape."""
    for operations in result["paths"].values():
        for method, operation in operations.items():
            if method in _METHODS:
                operation["responses"].setdefault("4XX", _ERROR)
    return result
