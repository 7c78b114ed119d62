"""Two versions side by side, as they are for minutes in every upgrade (docs/upgrading.md)."""

import json
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddField
from django.db.models import NOT_PROVIDED, AutoField, IntegerField, ManyToManyField

from apps.execution.protocol.answers import (
    Clocks,
    LaunchAnswer,
    NodeInventory,
    PullAnswer,
    Refusal,
    StopAnswer,
    SyncReport,
    decode,
)
from apps.execution.protocol.requests import LaunchRequest, NodeRequest, SyncRequest, encode
from apps.execution.transport.local import LocalTransport
from tests.execution.nodes import INSTALLATION, installed_local
from tests.services.sshd import kill_helpers

# What helpers of the first version answered, byte for byte but for names and numbers. Never edited:
# a field that is asked for and does not stand here keeps old nodes from being understood.
HEAD = '{"protocol": 1, "helper": "0f", "boot_id": "b", "uptime_s": 1.5, "wall_s": 2.5, "answer": '
FIRST_VERSION: list[tuple[type, str]] = [
    (
        SyncReport,
        (
            '{"version": "v", "members": [{"task_id": "t1", "generation": 1, "rank": 0, "state": '
            '"exited", "is_stop_asked": false, "started_wall_s": 1.0, "started_uptime_s": 1.0, '
            '"ended_wall_s": 2.0, "ended_uptime_s": 2.0, "exit_code": 0, "error": "", "log_bytes": '
            '3}], "logs": [{"task_id": "t1", "generation": 1, "rank": 0, "offset": 0, "content": '
            '"aGkK"}], "device_processes": [{"uuid": "GPU-1", "pid": 7, "memory_mb": 5, "member": '
            "null}]}"
        ),
    ),
    (
        NodeInventory,
        (
            '{"hostname": "h", "kernel": "6", "python": "3.11.2", "account": 0, "nvidia": "ok", '
            '"driver": "570", "devices": [{"index": 0, "uuid": "GPU-1", "model": "H100", '
            '"memory_mb": 8, "used_mb": 1, "cdi": "", "simulated": false, '
            '"utilisation_percent": null}], '
            '"cdi_names": [], "cpu_milli": 1000, "memory_mb": 1, "memory_free_mb": 1, "disk_mb": 1,'
            ' "disk_free_mb": 1, "network": [{"name": "e", "received_bytes": 1, "sent_bytes": 1}], '
            '"runtimes": {"podman": "4.3.1"}, "crashes": ""}'
        ),
    ),
    (LaunchAnswer, '{"state": "running"}'),
    (PullAnswer, '{"state": "present", "progress": ""}'),
    (StopAnswer, '{"state": "stopping"}'),
]


@pytest.mark.parametrize(("kind", "answer"), FIRST_VERSION, ids=lambda one: str(one)[:30])
def test_what_the_first_helpers_answered_is_still_understood(kind: type, answer: str) -> None:
    clocks, report = decode(f"{HEAD}{answer}}}".encode(), kind)

    assert clocks == Clocks("0f", "b", 1.5, 2.5)
    assert isinstance(report, kind)


@pytest.mark.parametrize(("kind", "answer"), FIRST_VERSION, ids=lambda one: str(one)[:30])
def test_what_later_helpers_will_also_report_is_ignored(kind: type, answer: str) -> None:
    later = _with_more(json.loads(answer))

    _, report = decode(f"{HEAD}{json.dumps(later)}}}".encode(), kind)

    assert isinstance(report, kind)


def test_a_helper_ignores_what_later_versions_will_also_ask(tmp_path: Any) -> None:
    node = installed_local(str(tmp_path / "node"))
    transport = node.client.transport
    assert isinstance(transport, LocalTransport)

    def ask(request: NodeRequest | dict[str, Any], kind: type) -> object:
        body = json.loads(encode(request)) if isinstance(request, NodeRequest) else request
        later = json.dumps({**body, "of_a_later_version": [1, {"two": None}]})
        return decode(transport.exchange(later.encode(), timeout_s=60), kind)[1]

    try:
        launch = node.launch_request("true")
        assert isinstance(launch, LaunchRequest)
        assert isinstance(ask(launch, LaunchAnswer), LaunchAnswer)
        assert isinstance(ask(SyncRequest(installation=INSTALLATION), SyncReport), SyncReport)
        # What it does not know at all it says so, and lives.
        unknown = ask(
            {"verb": "of_a_later_version", "protocol": 1, "installation": INSTALLATION}, SyncReport
        )
        assert isinstance(unknown, Refusal)
        assert unknown.code == "invalid"
    finally:
        kill_helpers(transport.home)


@pytest.mark.django_db
def test_columns_are_only_added_so_that_older_processes_can_leave_them_out() -> None:
    """An INSERT of the version before does not name them."""
    wrong = [
        f"{app}.{name}: {operation.model_name}.{operation.name}"
        for (app, name), migration in MigrationLoader(connection).disk_migrations.items()
        if type(migration).__module__.startswith("apps.") and not migration.initial
        for operation in migration.operations
        if isinstance(operation, AddField) and not _can_be_left_out(operation)
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("field", "want"),
    [
        (IntegerField(), False),
        (IntegerField(default=1), False),
        (IntegerField(db_default=1), True),
        (IntegerField(null=True), True),
    ],
)
def test_a_column_can_be_left_out_where_the_database_fills_it(field: Any, want: bool) -> None:
    assert _can_be_left_out(AddField("task", "later", field)) == want


def _can_be_left_out(operation: AddField) -> bool:
    field = operation.field
    has_default = getattr(field, "db_default", NOT_PROVIDED) is not NOT_PROVIDED
    return field.null or has_default or isinstance(field, (ManyToManyField, AutoField))


def _with_more(answer: Any) -> Any:
    """The same with a field more in every object."""
    if isinstance(answer, list):
        return [_with_more(one) for one in answer]
    if isinstance(answer, dict):
        is_mapping = set(answer) <= {"podman", "docker"}
        more = {} if is_mapping else {"of_a_later_version": [1]}
        return {key: _with_more(value) for key, value in answer.items()} | more
    return answer
