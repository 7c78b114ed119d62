"""A node that stops to start containers while it serves."""

import os
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from apps.execution.node_server import loop as server_loop
from apps.execution.node_server.server import NodeServer
from apps.execution.services import preflight
from apps.execution.services.node_registration import node_add
from apps.nodes.models import Node, Runtime, Transport
from tests.people import Example
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers
from tools.packages import find_program

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


def test_a_node_whose_runtime_breaks_is_drained_until_it_starts_containers_again(
    example: Example,
    tmp_path: Path,
    podman: PodmanStore,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, wrapper = tmp_path / "broken", tmp_path / "bin" / "podman"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f"#!/bin/sh\nif [ -e {broken} ]; then echo 'no runtime' >&2; exit 126; fi\n"
        f'exec {find_program("podman")} "$@"\n'
    )
    wrapper.chmod(0o755)
    path = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    node = node_add(
        name="here",
        pool=example.bare_metal,
        actor=None,
        transport=Transport.LOCAL,
        runtime=Runtime.PODMAN,
        state_dir=str(tmp_path / "node"),
        environment=podman.environment | path,
    )
    for name in ("PREFLIGHT_EVERY_S", "PREFLIGHT_AGAIN_S"):
        monkeypatch.setattr(server_loop, name, 0.5)
    monkeypatch.setattr(preflight, "PASSED_FOR_S", 0.0)
    broken.touch()

    settings.SYNC_TICK_S = 1
    server = NodeServer()
    server.start()
    try:
        wait_until(lambda: is_draining(node), what="the node drained")
        assert Node.objects.get().preflight_detail == "no runtime"
        broken.unlink()
        wait_until(lambda: not is_draining(node), what="the node resumed")
    finally:
        server.stop()
        server.join(timeout_s=20)
        kill_helpers(str(tmp_path / "node"))


def is_draining(node: Node) -> bool:
    return Node.objects.filter(pk=node.pk, is_draining=True).exists()
