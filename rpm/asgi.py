"""HTTP and websockets in one ASGI server; where WSGI workers run too, only `/ws/` comes here."""

import os
from typing import Any, cast

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")

http = get_asgi_application()

# Models exist only after the line above.
from channels.auth import AuthMiddlewareStack  # noqa: E402

from apps.accounts.scope_person import scope_person  # noqa: E402
from apps.core.bodies import bound_bodies  # noqa: E402
from apps.dashboard.consumers import LiveConsumer  # noqa: E402
from apps.dashboard.origins import own_origin  # noqa: E402
from apps.dashboard.socket_access import with_credentials  # noqa: E402
from apps.dashboard.stream_socket import stream_socket  # noqa: E402

# Channels routes ASGI applications by Django's addresses, which are typed for views.
sockets: list[Any] = [
    path("ws/live/", cast(Any, LiveConsumer.as_asgi())),
    path("ws/tasks/<uuid:pk>/stream/", cast(Any, stream_socket)),
]

live = URLRouter(sockets)
browsers = own_origin(AuthMiddlewareStack(live))
application = ProtocolTypeRouter(
    {
        "http": bound_bodies(cast(Any, http), identify=scope_person),
        "websocket": with_credentials(live, browsers=browsers),
    }
)
