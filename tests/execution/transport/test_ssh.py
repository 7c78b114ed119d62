"""Exchanges with real sshd nodes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from socket import create_server
from unittest.mock import patch

import pytest

from apps.execution.protocol.outcomes import Answered, NodeUnreachable
from apps.execution.protocol.requests import ProbeRequest, SyncRequest
from apps.execution.transport.base import ExchangeFailed, HostKeyRefused, Unreachable
from apps.execution.transport.host_keys import ssh_host_key
from apps.execution.transport.ssh import SshTransport, load_private_key
from tests.execution.nodes import INSTALLATION, installed_ssh, member_of
from tests.services.sshd import CONFIG, SshdNode, StartSshNode
from tests.services.timeouts import scale_timeout


def test_a_task_runs_on_a_node_over_ssh(ssh_node: SshdNode) -> None:
    node = installed_ssh(ssh_node)
    request = node.launch_request("sh", "-c", "echo over ssh; exit 2")

    node.client.launch(request)

    assert node.wait_for_exit(member_of(request)).exit_code == 2
    assert node.logs[member_of(request)] == b"over ssh\n"


def test_the_key_of_a_host_can_be_shown_before_it_is_confirmed(ssh_node: SshdNode) -> None:
    shown = ssh_host_key(ssh_node.address, ssh_node.port)

    assert shown == ssh_node.host_key
    assert shown.fingerprint.startswith("SHA256:")


@pytest.mark.parametrize("is_pinned", [True, False])
def test_an_unconfirmed_or_changed_host_key_is_refused_and_nothing_is_sent(
    ssh_node: SshdNode, is_pinned: bool
) -> None:
    pinned = ssh_node.host_key if is_pinned else None
    transport = SshTransport(replace(ssh_node.ssh_node(), host_key=pinned))
    if is_pinned:
        ssh_node.stop()
        ssh_node.change_host_key()
        ssh_node.start()

    with pytest.raises(HostKeyRefused) as refusal:
        transport.exchange(b"{}", timeout_s=scale_timeout(10))

    assert refusal.value.shown == ssh_node.host_key.fingerprint
    assert ssh_node.host_key.fingerprint in str(refusal.value)
    assert not refusal.value.may_have_arrived
    log = (ssh_node.folder / "log").read_text()
    assert "Accepted publickey" not in log


def test_a_key_that_the_node_does_not_know_is_not_let_in(
    start_ssh_node: StartSshNode,
) -> None:
    ours, other = start_ssh_node(), start_ssh_node()
    transport = SshTransport(replace(ours.ssh_node(), private_key=other.private_key))

    with pytest.raises(Unreachable, match="may not log in"):
        transport.exchange(b"{}", timeout_s=scale_timeout(10))


def test_many_exchanges_share_one_connection(ssh_node: SshdNode) -> None:
    node = installed_ssh(ssh_node)

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(
            pool.map(
                lambda _: node.client.probe(ProbeRequest(installation=INSTALLATION)), range(32)
            )
        )

    assert all(isinstance(one, Answered) for one in outcomes)
    log = (ssh_node.folder / "log").read_text()
    # One for the installation, one for everything after it.
    assert log.count("Accepted publickey") == 2


def test_after_a_restart_of_sshd_the_next_exchange_connects_again(ssh_node: SshdNode) -> None:
    node = installed_ssh(ssh_node)
    request = node.launch_request("sleep", "30")
    node.client.launch(request)

    ssh_node.stop()
    away = node.client.probe(ProbeRequest(installation=INSTALLATION))
    ssh_node.start()

    assert isinstance(away, NodeUnreachable)
    (member,) = node.sync().members
    assert member.state == "running"


def test_a_cut_during_an_exchange_says_that_the_request_may_have_arrived(
    ssh_node: SshdNode,
) -> None:
    node = installed_ssh(ssh_node)
    node.sync()
    waiting = SyncRequest(installation=INSTALLATION, seen=node.seen, wait_s=20)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(node.client.sync, waiting)
        cut = threading.Timer(0.5, ssh_node.stop)
        cut.start()
        outcome = future.result()
        cut.join()

    assert isinstance(outcome, NodeUnreachable)
    assert outcome.may_have_arrived


def test_an_exchange_that_takes_too_long_is_given_up(ssh_node: SshdNode) -> None:
    transport = SshTransport(ssh_node.ssh_node(is_installed=False))

    with pytest.raises(ExchangeFailed, match="in time"):
        transport.install(b"import time; time.sleep(60)", timeout_s=1)


def test_the_words_of_a_failing_helper_come_back(ssh_node: SshdNode) -> None:
    transport = SshTransport(ssh_node.ssh_node(is_installed=False))

    with pytest.raises(ExchangeFailed, match="ValueError: no such thing"):
        transport.install(b"raise ValueError('no such thing')", timeout_s=scale_timeout(20))


def test_a_port_where_nobody_speaks_is_unreachable_in_time(ssh_node: SshdNode) -> None:
    with create_server(("127.0.0.1", 0)) as silent:
        node = replace(ssh_node.ssh_node(), port=silent.getsockname()[1])

        with pytest.raises(Unreachable):
            SshTransport(node).exchange(b"{}", timeout_s=1)


def test_a_node_whose_own_key_is_broken_is_unreachable(ssh_node: SshdNode) -> None:
    transport = SshTransport(replace(ssh_node.ssh_node(), private_key="-----BEGIN NOTHING-----"))

    with pytest.raises(Unreachable, match="cannot be used"):
        transport.exchange(b"{}", timeout_s=scale_timeout(10))


def test_a_text_that_is_no_key_is_not_loaded() -> None:
    with pytest.raises(ValueError, match="not a private key"):
        load_private_key("-----BEGIN NOTHING-----")


def test_a_key_that_runs_anything_is_distinguished_from_one_that_runs_the_helper_only(
    ssh_node: SshdNode,
) -> None:
    free = SshTransport(ssh_node.ssh_node())
    assert not free.is_restricted(timeout_s=scale_timeout(20))
    free.close()

    keys = ssh_node.folder / "authorized_keys"
    keys.write_text(f'restrict,command="echo no >&2; exit 1" {keys.read_text()}')

    bound = SshTransport(ssh_node.ssh_node())
    assert bound.is_restricted(timeout_s=scale_timeout(20))
    bound.close()


def test_how_many_sessions_a_connection_has_is_found_by_trying(ssh_node: SshdNode) -> None:
    transport = SshTransport(ssh_node.ssh_node())
    assert transport.sessions_at_once(most=9, timeout_s=scale_timeout(20)) == 9
    transport.close()
    ssh_node.stop()

    with patch("tests.services.sshd.CONFIG", CONFIG + "MaxSessions 4\n"):
        ssh_node.start()
    transport = SshTransport(ssh_node.ssh_node())

    assert transport.sessions_at_once(most=9, timeout_s=scale_timeout(20)) == 4
    transport.close()
    # A new connection has all of them again.
    transport = SshTransport(ssh_node.ssh_node())
    assert transport.sessions_at_once(most=9, timeout_s=scale_timeout(20)) == 4
    transport.close()


def test_an_exchange_waits_for_a_session_that_has_just_ended(ssh_node: SshdNode) -> None:
    """A busy sshd counts it for a moment longer; the exchange failed then."""
    ssh_node.stop()
    with patch("tests.services.sshd.CONFIG", CONFIG + "MaxSessions 2\n"):
        ssh_node.start()
    node = installed_ssh(ssh_node)

    with (
        patch("apps.execution.transport.ssh.FREE_WITHIN_S", scale_timeout(60)),
        ThreadPoolExecutor(4) as pool,
    ):
        outcomes = list(
            pool.map(
                lambda _: node.client.probe(ProbeRequest(installation=INSTALLATION)), range(12)
            )
        )

    assert [type(one) for one in outcomes] == [Answered] * 12
