"""REST of the live configuration, the draft and the revisions."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.permissions import IsAdmin, person
from apps.configuration.api.previews import PreviewSerializer
from apps.configuration.api.renderers import DocumentJSONParser, YamlParser, YamlRenderer
from apps.configuration.api.serializers import (
    DraftChangesSerializer,
    FindingSerializer,
    ProvisionSerializer,
    RestoreSerializer,
    RevisionDetailSerializer,
    RevisionDiffSerializer,
    RevisionSerializer,
    SwitchSerializer,
)
from apps.configuration.models import Revision
from apps.configuration.selectors import (
    draft_changes,
    draft_document,
    live_document,
    revision_document,
    revisions_visible_to,
)
from apps.configuration.services.drafts import draft_reset, draft_write
from apps.configuration.services.pools import resource_management_switch
from apps.configuration.services.preview import draft_preview
from apps.configuration.services.provision import document_provision
from apps.configuration.services.revisions import revision_restore
from apps.configuration.services.validation import document_check
from apps.core.api import KeysetPagination, if_match
from apps.core.errors import BadInput, NotFound
from apps.policies.document import Document, as_data, compare, parse
from apps.policies.models import DraftState, LiveState

FINDINGS = inline_serializer(
    "Findings",
    {"errors": FindingSerializer(many=True), "warnings": FindingSerializer(many=True)},
)
DOCUMENT = OpenApiTypes.OBJECT
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, required=True)
MAY_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER)


class _DocumentView(APIView):
    permission_classes = (IsAdmin,)
    renderer_classes = (JSONRenderer, YamlRenderer)
    parser_classes: tuple[type[BaseParser], ...] = (DocumentJSONParser, YamlParser)


class ConfigurationView(_DocumentView):
    """The live configuration, and the switch of resource management."""

    @extend_schema(responses=DOCUMENT)
    def get(self, request: Request) -> Response:  # noqa: ARG002  # DRF's signature
        """The live document, policies included; its ETag is the version."""
        return _document_response(live_document(), LiveState.objects.get(id=1).version)

    @extend_schema(request=SwitchSerializer, responses=SwitchSerializer)
    def patch(self, request: Request) -> Response:
        """Switch resource management on or off."""
        body = _validated_body(SwitchSerializer, request)
        state = resource_management_switch(actor=person(request), is_enabled=body["is_enabled"])
        return Response({"is_enabled": state.is_enabled})


class DraftView(_DocumentView):
    """The draft, as administrators saved it last."""

    @extend_schema(responses=DOCUMENT)
    def get(self, request: Request) -> Response:  # noqa: ARG002  # DRF's signature
        """The draft; send its ETag back as If-Match when saving."""
        return _draft_response()

    @extend_schema(request=DOCUMENT, responses=DOCUMENT, parameters=[IF_MATCH])
    def put(self, request: Request) -> Response:
        """Save the whole draft. `policies` apply at once elsewhere and are not read here."""
        version = if_match(request, is_required=True)
        draft_write(document=parse(request.data), actor=person(request), version=version)
        return _draft_response()


class DraftChangesView(_DocumentView):
    @extend_schema(responses=DraftChangesSerializer)
    def get(self, request: Request) -> Response:  # noqa: ARG002  # DRF's signature
        """What provisioning would change, and who saved the draft last."""
        state = DraftState.objects.select_related("saved_by").get(id=1)
        facts = {
            "version": state.version,
            "base_revision": state.base_revision,
            "saved_at": state.saved_at,
            "saved_by": state.saved_by.username if state.saved_by else None,
            "changes": draft_changes(),
        }
        return Response(DraftChangesSerializer(facts).data)


class ValidateView(_DocumentView):
    @extend_schema(request=DOCUMENT, responses=FINDINGS)
    def post(self, request: Request) -> Response:
        """Errors and warnings of the document that is sent; without a body, of the draft."""
        document = _sent_document(request) or draft_document()
        found = document_check(document)
        findings = {
            "errors": [finding for finding in found if finding.is_error],
            "warnings": [finding for finding in found if not finding.is_error],
        }
        return Response({k: FindingSerializer(v, many=True).data for k, v in findings.items()})


class PreviewView(_DocumentView):
    @extend_schema(request=DOCUMENT, responses=PreviewSerializer)
    def post(self, request: Request) -> Response:
        """What provisioning would do to waiting and running tasks; nothing is kept.

        Of the document that is sent; without a body, of the draft.
        """
        preview = draft_preview(actor=person(request), document=_sent_document(request))
        return Response(PreviewSerializer(preview).data)


class ProvisionView(_DocumentView):
    @extend_schema(request=ProvisionSerializer, responses={201: RevisionSerializer})
    def post(self, request: Request) -> Response:
        """Make the draft live, all or nothing."""
        body = _validated_body(ProvisionSerializer, request)
        revision = document_provision(
            actor=person(request), note=body["note"], version=if_match(request)
        )
        return Response(RevisionSerializer(revision).data, status=201)


class ResetView(_DocumentView):
    @extend_schema(request=None, responses=DOCUMENT, parameters=[MAY_MATCH])
    def post(self, request: Request) -> Response:
        """Discard the saved changes of the draft."""
        draft_reset(actor=person(request), version=if_match(request))
        return _draft_response()


class _ByNumber(KeysetPagination):
    ordering = "-number"


class RevisionViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[Revision]):
    """Numbered documents, one per provisioning and per change of a policy or queue."""

    permission_classes = (IsAdmin,)
    renderer_classes = (JSONRenderer, YamlRenderer)
    pagination_class = _ByNumber
    queryset = Revision.objects.none()
    lookup_field = "number"
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Revision]:
        revisions = revisions_visible_to(self.request.user).select_related("author")
        return revisions.defer("document") if self.action == "list" else revisions

    def get_serializer_class(self) -> Any:
        return RevisionSerializer if self.action == "list" else RevisionDetailSerializer

    @extend_schema(
        parameters=[OpenApiParameter("with", int, required=True)], responses=RevisionDiffSerializer
    )
    @action(detail=True)
    def compare(self, request: Request, number: str) -> Response:  # noqa: ARG002  # the route's
        """What differs between this revision and the one named by `with`."""
        one = self.get_object()
        others = request.query_params.get("with", "")
        if not others.isascii() or not others.isdigit():
            raise BadInput("with is missing.", fields={"with": "must be a revision's number"})
        other = self.get_queryset().filter(number=min(int(others[:19]), 2**62)).first()
        if other is None:
            raise NotFound(f"There is no revision {others}.", fields={"with": "is unknown"})
        older, newer = sorted((one, other), key=lambda revision: revision.number)
        changes = compare(revision_document(older), revision_document(newer))
        found = {"older": older.number, "newer": newer.number, "changes": changes}
        return Response(RevisionDiffSerializer(found).data)

    @extend_schema(request=None, responses=RestoreSerializer, parameters=[MAY_MATCH])
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, number: str) -> Response:  # noqa: ARG002  # the route's
        """Write this revision's document into the draft; policies stay as they are."""
        version, notes = revision_restore(
            revision=self.get_object(), actor=person(request), version=if_match(request)
        )
        return Response({"version": version, "notes": notes}, headers={"ETag": f'"{version}"'})


def _draft_response() -> Response:
    # The version first: if another user saves in between, the reader's next save is refused,
    # instead of writing over what was never read.
    version = DraftState.objects.get(id=1).version
    return _document_response(draft_document(), version)


def _sent_document(request: Request) -> Document | None:
    """The document of the body; None without a body, which arrives as an empty object."""
    return None if request.data in (None, {}) else parse(request.data)


def _document_response(document: Document, version: int) -> Response:
    return Response(as_data(document), headers={"ETag": f'"{version}"'})


def _validated_body(serializer: Any, request: Request) -> dict[str, Any]:
    body = serializer(data=request.data)
    body.is_valid(raise_exception=True)
    checked: dict[str, Any] = body.validated_data
    return checked
