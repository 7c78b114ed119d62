"""If-Match of rules and restrictions, whose versions are digests."""

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from apps.core.errors import BadInput

RULE_ETAG = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The ETag.")


def rule_version(request: Request, *, is_required: bool) -> str | None:
    """The version that `If-Match` names; None where it is left out or `*`.

    Raises:
        BadInput: the header is missing and required.
    """
    given = request.headers.get("If-Match", "").strip()
    if not given and is_required:
        wanted = "send the ETag that you read"
        raise BadInput(f"If-Match is missing: {wanted}.", fields={"If-Match": wanted})
    return None if given in {"", "*"} else given.removeprefix("W/").strip('"')
