"""REST, version 1."""

from typing import Any

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.core.errors import NotFound
from rpm.api_schema import SchemaView


class NoSuchAddress(APIView):
    """Answer unknown addresses below this one with a REST error, not a page."""

    schema = None
    authentication_classes = []
    permission_classes = []

    def initial(self, request: Request, *_args: Any, **_kwargs: Any) -> None:
        raise NotFound(f"There is no {request.path}.")


urlpatterns = [
    path("", include("apps.configuration.api.urls")),
    path("", include("apps.events.api.urls")),
    path("", include("apps.nodes.api.urls")),
    path("", include("apps.execution.api.urls")),
    path("", include("apps.notices.api.urls")),
    path("", include("apps.usage.api.urls")),
    path("", include("apps.accounts.api.urls")),
    path("", include("apps.access.api.urls")),
    # Before tasks, whose last part may be anything.
    path("", include("apps.allocation.api.urls")),
    path("", include("apps.tasks.api.urls")),
    path("schema/", SchemaView.as_view(), name="api-schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    re_path("", NoSuchAddress.as_view()),
]
