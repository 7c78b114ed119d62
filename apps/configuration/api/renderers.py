"""Documents as YAML, in and out, as an alternative to JSON."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import msgspec
import yaml
from rest_framework import exceptions
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from apps.core.errors import BadInput
from apps.core.parsers import BoundedJSONParser, read_bounded_body
from apps.policies.document import source_text, yaml_data


class YamlRenderer(BaseRenderer):
    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,  # noqa: ARG002  # DRF passes them by name
        renderer_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> str:
        # Through JSON, so that lazy texts and tuples become types of YAML.
        plain = msgspec.json.decode(json.dumps(data, default=str))
        text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        return text


class YamlParser(BaseParser):
    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002  # DRF's signature
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        return yaml_data(_body_text(stream))


class YamlFileParser(BaseParser):
    """Parses a configuration file, with the lines of its parts."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002  # DRF's signature
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        return source_text(_body_text(stream))


class DocumentJSONParser(BoundedJSONParser):
    """Parses a document in JSON. Refuses a repeated key, of which others silently take the last."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        body = read_bounded_body(stream)
        data = super().parse(io.BytesIO(body), media_type, parser_context)
        json.loads(body, object_pairs_hook=_each_once)
        return data


def _body_text(stream: IO[Any]) -> str:
    try:
        return read_bounded_body(stream).decode()
    except UnicodeDecodeError as error:
        raise exceptions.ParseError("The body is not UTF-8.") from error


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            problem = f"names {key[:80]!r} twice in one object"
            raise BadInput(f"The body {problem}.", fields={"body": problem})
        found[key] = value
    return found
