"""The bodies of requests that change something: the least that is accepted."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from tests.authorisation.cells import Cell
from tests.authorisation.world import INSTALLATION, MATE, World

Body = dict[str, Any]
Make = Callable[[World, Cell], Body]


def _queue(world: World, cell: Cell) -> Body:
    """A queue of the requester, if they have one."""
    queue = world.objects.get(("queue", cell.role.place, ""))
    if queue is None and cell.kind:
        queue = world.one("queue", cell.place or "a")
    return {"queue": queue.name} if queue is not None else {}


MACHINE = {"name": "new", "address": "localhost", "user": "rpm", "key": "none"}
BODIES: tuple[tuple[str, Make], ...] = (
    ("* /api/v1/tasks/<pk>/enqueue/", _queue),
    ("* /api/v1/tasks/<pk>/change-queue/", _queue),
    ("* /api/v1/tasks/<pk>/priority/", lambda _w, _c: {"priority": 1}),
    ("* /api/v1/tasks/<pk>/idle-rule/", lambda _w, _c: {"is_exempt": True}),
    ("PUT /api/v1/tasks/<pk>/dependencies/", lambda _w, _c: {"after": []}),
    ("* /api/v1/tasks/<pk>/reorder/", lambda _w, _c: {"move": "top"}),
    ("* /api/v1/tasks/check/", lambda w, c: {"name": "new", "command": ["x"], **_queue(w, c)}),
    ("POST /api/v1/tasks/bulk-actions/", lambda _w, _c: {"action": "hold", "tasks": []}),
    ("POST /api/v1/tasks/", lambda w, c: {"name": "new", "command": ["x"], **_queue(w, c)}),
    ("POST /api/v1/policies/", lambda w, _c: {"name": "new", "group": w.one("group", "a").name}),
    ("PATCH /api/v1/policies/<pk>/", lambda _w, _c: {"weight": 3}),
    (
        "POST /api/v1/policies/<pk>/profiles/",
        lambda w, _c: {"profile": w.one("profile", "t" if _c.place != "t" else "a").name},
    ),
    ("* /api/v1/policies/<pk>/exceeders/", lambda _w, _c: {"users": [], "groups": []}),
    (
        "PUT /api/v1/policies/<pk>/restriction/",
        lambda _w, _c: {"is_restricted": False, "people": []},
    ),
    (
        "POST /api/v1/access-rules/",
        lambda w, _c: {
            "kind": "policy",
            "object": str(w.one("policy", "a").pk),
            "level": "read",
            "users": [_mate(w).username],
        },
    ),
    (
        "POST /api/v1/usage/rates/",
        lambda _w, _c: {"price": "2", "valid_from": "2100-01-01T00:00:00Z"},
    ),
    ("PUT /api/v1/usage/threshold/", lambda _w, _c: {"gpu_percent": 80}),
    ("PATCH /api/v1/log-in-rules/", lambda _w, _c: {"requires_second_factor": False}),
    ("POST /api/v1/vaults/<pk>/restore/", lambda _w, _c: {"to": 1}),
    ("PATCH /api/v1/queues/<name_or_id>/", lambda _w, _c: {"max_priority": 5}),
    ("POST /api/v1/queues/reorder/", lambda w, _c: _order(w)),
    ("PATCH /api/v1/account/", lambda _w, _c: {"first_name": "Ruth"}),
    ("POST /api/v1/credentials/", lambda _w, _c: {"label": "new"}),
    ("PATCH /api/v1/credentials/<pk>/", lambda _w, _c: {"label": "new"}),
    ("POST /api/v1/notice-rules/", lambda _w, _c: {"scope": "own", "kinds": ["failed"]}),
    ("PATCH /api/v1/notice-settings/", lambda _w, _c: {"digest": "daily"}),
    ("POST /settings/notices/", lambda _w, _c: {"digest": "daily"}),
    ("PATCH /api/v1/notice-rules/<pk>/", lambda _w, _c: {"kinds": ["ended"]}),
    ("POST /settings/notices/new/", lambda _w, _c: {"tasks": "own", "kinds": "failed"}),
    ("POST /settings/notices/<pk>/edit/", lambda _w, _c: {"kinds": "ended"}),
    ("POST /api/v1/groups/", lambda _w, _c: {"name": "new"}),
    ("PATCH /api/v1/groups/<pk>/", lambda _w, _c: {"description": "new"}),
    ("POST /api/v1/groups/<pk>/members/*", lambda w, _c: {"users": [_mate(w).username]}),
    ("POST /api/v1/users/", lambda _w, _c: {"username": "new"}),
    ("PATCH /api/v1/users/<pk>/", lambda _w, _c: {"first_name": "Ruth"}),
    ("POST /api/v1/service-accounts/", lambda _w, _c: {"name": "new"}),
    ("PATCH /api/v1/service-accounts/<pk>/", lambda _w, _c: {"name": "new"}),
    ("POST /api/v1/vaults/", lambda _w, _c: {"name": "new", "text": "a: 1", "format": "yaml"}),
    ("PATCH /api/v1/vaults/<pk>/", lambda _w, _c: {"is_active": False}),
    ("POST /api/v1/vaults/<pk>/move/", lambda _w, _c: {"position": 1}),
    ("POST /api/v1/vaults/validate/", lambda _w, _c: {"text": "a: 1", "format": "yaml"}),
    ("POST /api/v1/volumes/", lambda _w, _c: {"name": "new", "path": "/srv/new"}),
    ("PATCH /api/v1/volumes/<pk>/", lambda _w, _c: {"description": "new"}),
    ("PATCH /api/v1/configuration/", lambda _w, _c: {"is_enabled": False}),
    ("POST /api/v1/nodes/<pk>/declare-off/", lambda _w, _c: {"reason": "because"}),
    ("PATCH /api/v1/nodes/<pk>/", lambda _w, _c: {"labels": {"rack": "4"}}),
    ("POST /api/v1/nodes/<pk>/rekey/", lambda _w, _c: {"fingerprint": f"SHA256:{'a' * 43}"}),
    ("POST /api/v1/nodes/<pk>/remove/", lambda _w, _c: {"force": True, "reason": "because"}),
    ("POST /api/v1/nodes/", lambda _w, _c: MACHINE),
    ("POST /api/v1/nodes/check/", lambda _w, _c: MACHINE),
    ("POST /api/v1/installation/maintenance/", lambda _w, _c: {"hours": 2}),
    ("PATCH /api/v1/preferences/", lambda _w, _c: {"redacted_variables": ["MINE"]}),
    ("POST /tasks/<pk>/enqueue/", _queue),
    ("POST /tasks/<pk>/queue/", _queue),
    ("POST /tasks/<pk>/priority/", lambda _w, _c: {"priority": 1}),
    ("POST /tasks/<pk>/idle-rule/", lambda _w, _c: {"is_exempt": "1"}),
    ("POST /tasks/<pk>/edit/", lambda _w, _c: {"name": "new", "command": "x"}),
    ("POST /tasks/new/", lambda _w, _c: {"name": "new", "command": "x"}),
    ("POST /queues/<pk>/order/", lambda w, c: {"move": f"top {_waiting(w, c).pk}"}),
    ("POST /queues/<pk>/pause/", lambda _w, _c: {"reason": "because"}),
    ("POST /policies/<pk>/pause/", lambda _w, _c: {"reason": "because"}),
    ("POST /nodes/add/", lambda _w, _c: MACHINE | {"port": "22", "runtime": "podman"}),
    ("POST /nodes/<pk>/edit/", lambda _w, _c: {"name": "renamed"}),
    ("POST /nodes/<pk>/host-key/", lambda _w, _c: {"fingerprint": f"SHA256:{'a' * 43}"}),
    ("POST /nodes/<pk>/remove/", lambda _w, _c: {"force": "on", "reason": "because"}),
    ("POST /nodes/<pk>/pause/", lambda _w, _c: {"reason": "because"}),
    ("POST /settings/resources/pools/<pk>/pause/", lambda _w, _c: {"reason": "because"}),
    ("POST /settings/vaults/<pk>/move/", lambda _w, _c: {"position": "1"}),
    ("POST /settings/vaults/<pk>/switch/", lambda _w, _c: {"is_active": "0"}),
    ("POST /settings/people/groups/<pk>/add/", lambda w, _c: {"person": [_mate(w).pk]}),
    ("POST /settings/people/groups/<pk>/leave/", lambda w, _c: {"person": [_mate(w).pk]}),
    ("POST /settings/people/groups/new/", lambda _w, _c: {"name": "new"}),
    ("POST /settings/people/invite/", lambda _w, _c: {"username": "new", "days": "7"}),
    ("POST /credentials/<pk>/label/", lambda _w, _c: {"label": "new"}),
)


def body_of(world: World, cell: Cell) -> Body:
    """The body for a cell; empty where nothing is needed, or nothing can be known beforehand."""
    wanted = str(cell.surface)
    make = next((make for pattern, make in BODIES if fnmatchcase(wanted, pattern)), None)
    return make(world, cell) if make else {}


def _order(world: World) -> Body:
    queues = [world.one("queue", place).name for place in ("b", "a", "t")]
    return {"profile": world.one("profile", INSTALLATION).name, "order": queues}


def _waiting(world: World, cell: Cell) -> Any:
    return world.one("waiting", cell.place or "a", MATE)


def _mate(world: World) -> Any:
    return world.people["a-mate"]
