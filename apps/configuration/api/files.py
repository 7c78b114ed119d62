"""REST of configuration files: export, what a file would change, and applying it."""

from dataclasses import dataclass
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.api.permissions import IsAdmin, person
from apps.configuration.api.previews import PreviewSerializer
from apps.configuration.api.renderers import DocumentJSONParser, YamlFileParser, YamlRenderer
from apps.configuration.api.serializers import AppliedSerializer
from apps.configuration.services.files import (
    Applied,
    configuration_apply,
    configuration_diff,
    configuration_export,
)
from apps.core.api import whole_parameter
from apps.core.errors import BadInput
from apps.policies.document import PRUNABLE, SourceText

NOTE_CHARS = 1000
PRUNE = OpenApiParameter(
    "prune",
    str,
    description=f"Kinds, separated by commas, of which everything is removed that the file does "
    f"not name: {', '.join(PRUNABLE)}.",
)


class ConfigurationDiffSerializer(AppliedSerializer):
    """What a file would change, and what that would do to tasks, as previews show it."""

    preview = PreviewSerializer()


@dataclass(frozen=True, slots=True)
class _Diff:
    revision: int
    version: str
    is_changed: bool
    changes: Any
    preview: Any


class _FileView(APIView):
    permission_classes = (IsAdmin,)
    renderer_classes = (JSONRenderer, YamlRenderer)
    parser_classes = (YamlFileParser, DocumentJSONParser)


class ExportView(_FileView):
    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """The live configuration as a file: applying it again changes nothing.

        Its ETag is the last revision.
        """
        data, revision = configuration_export(actor=person(request))
        return Response(data, headers={"ETag": f'"{revision}"'})


class DiffView(_FileView):
    @extend_schema(
        request=OpenApiTypes.OBJECT, parameters=[PRUNE], responses=ConfigurationDiffSerializer
    )
    def post(self, request: Request) -> Response:
        """What a file would change, by name, and its effect on tasks; nothing is kept."""
        applied, preview = configuration_diff(
            actor=person(request), source=_source(request), prune=_prune(request)
        )
        found = _Diff(
            applied.revision, applied.version, applied.is_changed, applied.changes, preview
        )
        return Response(ConfigurationDiffSerializer(found).data)


class ApplyView(_FileView):
    @extend_schema(
        request=OpenApiTypes.OBJECT,
        parameters=[
            OpenApiParameter("dry_run", bool, description="Change nothing."),
            OpenApiParameter("note", str, description="Of the revision."),
            OpenApiParameter(
                "revision", int, description="The last one that you know; a later one gives 412."
            ),
            OpenApiParameter(
                "version", str, description="That of a diff; 412 where something changed since."
            ),
            PRUNE,
        ],
        responses=AppliedSerializer,
    )
    def post(self, request: Request) -> Response:
        """Make the configuration as a file says, all or nothing, in one revision.

        What the file does not name stays as it is. A second time changes nothing.
        """
        applied: Applied = configuration_apply(
            actor=person(request),
            source=_source(request),
            note=_note(request),
            revision=whole_parameter(request, "revision", lowest=0, highest=2**62),
            version=request.query_params.get("version", ""),
            prune=_prune(request),
            is_dry_run=_is_dry_run(request),
        )
        return Response(AppliedSerializer(applied).data)


def _source(request: Request) -> SourceText:
    data: Any = request.data
    return data if isinstance(data, SourceText) else SourceText(data)


def _prune(request: Request) -> list[str]:
    given = request.query_params.get("prune", "")
    return [one.strip() for one in given.split(",") if one.strip()]


def _note(request: Request) -> str:
    note: str = serializers.CharField(max_length=NOTE_CHARS, allow_blank=True).run_validation(
        request.query_params.get("note", "")
    )
    return note


def _is_dry_run(request: Request) -> bool:
    given = request.query_params.get("dry_run", "false").lower()
    if given not in {"true", "false", "1", "0"}:
        problem = "must be true or false"
        raise BadInput(f"dry_run {problem}.", fields={"dry_run": problem})
    return given in {"true", "1"}
