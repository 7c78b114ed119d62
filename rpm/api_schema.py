"""The schema of REST as this process serves it."""

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, cast

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

_building = Lock()


class SchemaView(SpectacularAPIView):
    """The schema, built once per process: that takes seconds, and all users get the same."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *_args: Any, **_kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        # Two at once must not both build it.
        kind: Any = type(renderer)
        with _building:
            content = _document(kind)
        name = f'inline; filename="rpm-v1.{renderer.format}"'
        return HttpResponse(
            content,
            content_type=renderer.media_type,
            headers={"Content-Disposition": name},
        )


@cache
def _document(renderer: Callable[[], BaseRenderer]) -> bytes:
    content = renderer().render(_schema())
    return content.encode() if isinstance(content, str) else content


@cache
def _schema() -> dict[str, Any]:
    # Comes without types.
    generator: Any = cast(Any, SchemaGenerator)()
    schema: dict[str, Any] = generator.get_schema(public=True)
    return schema
