"""The parts of the OpenAPI file that all operations share, and schemas of structs."""

from inspect import cleandoc
from typing import Any

import msgspec
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.plumbing import ResolvedComponent

_REF = "#/components/schemas/{name}"
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


class StructExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # untyped base
    """A struct as a request or a response: its types are the schema."""

    target_class = "msgspec.Struct"
    match_subclasses = True

    def get_name(self, auto_schema: Any, direction: str) -> str:  # noqa: ARG002  # asked by name
        return str(self.target.__name__)

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:  # noqa: ARG002
        own, parts = _schemas_of(self.target)
        for name, schema in parts.items():
            component = ResolvedComponent(  # type: ignore[no-untyped-call]  # untyped
                name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema
            )
            auto_schema.registry.register_on_missing(component)
        return own


def list_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """A body with a list of what another operation takes."""
    item = {"$ref": _REF.format(name=f"{struct.__name__}Request")}
    return {"application/json": {"type": "array", "items": item}}


def changes_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """A body with some of the fields that another operation takes."""
    own, _ = _schemas_of(struct)
    for schema in own["properties"].values():
        # What is left out stays as it is.
        schema.pop("default", None)
    return {"application/json": {name: own[name] for name in ("type", "properties")}}


def _schemas_of(struct: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a struct, and those of the structs in it by their names."""
    _, found = msgspec.json.schema_components([struct], ref_template=_REF)
    schemas = {name: _as_openapi(schema) for name, schema in found.items()}
    return schemas.pop(struct.__name__), schemas


def _as_openapi(schema: Any) -> Any:
    """A JSON schema as OpenAPI 3.0 says it: null is no type there."""
    if isinstance(schema, list):
        return [_as_openapi(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _as_openapi(value) for name, value in schema.items() if name != "title"}
    if isinstance(found.get("description"), str):
        found["description"] = cleandoc(found["description"])
    if found.get("default", ...) is None:
        del found["default"]
    kinds = found.get("anyOf", [])
    others = [kind for kind in kinds if kind != {"type": "null"}]
    if len(others) == 1:
        del found["anyOf"]
        found |= {"allOf": others} if "$ref" in others[0] else others[0]
    elif others:
        found["anyOf"] = others
    if len(others) < len(kinds):
        found["nullable"] = True
    return found
