"""Output of tasks: stored once, in order, bounded, with every cut marked."""

from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.tasks.masking import masked
from apps.tasks.models import Attempt, AttemptLog, Holding, Task
from apps.tasks.selectors.attempts import log_from
from apps.tasks.services import logs
from apps.tasks.services.logs import log_append
from apps.tasks.services.sealing import secrets_sealed
from tests.allocation.state import enqueue, make_node
from tests.cast import Example


@pytest.fixture
def holding(example: Example, alice: User) -> Holding:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    return Holding.objects.get()


def append(holding: Holding, offset: int, content: bytes) -> int:
    return log_append(holding_id=holding.pk, offset=offset, content=content, at=timezone.now())


def stored(holding: Holding) -> bytes:
    return log_from(Attempt.objects.get(), rank=holding.rank, offset=0).data


def test_pieces_are_put_together(holding: Holding) -> None:
    assert append(holding, 0, b"step 1\n") == 7
    assert append(holding, 7, b"step 2\n") == 14

    assert stored(holding) == b"step 1\nstep 2\n"
    attempt = Attempt.objects.get()
    assert (attempt.log_bytes, attempt.log_is_cut) == (14, False)


def test_a_piece_that_comes_twice_is_stored_once(holding: Holding) -> None:
    append(holding, 0, b"step 1\n")

    assert append(holding, 0, b"step 1\n") == 7

    assert AttemptLog.objects.count() == 1
    assert Attempt.objects.get().log_bytes == 7


def test_of_an_overlapping_piece_only_the_new_part_is_stored(holding: Holding) -> None:
    append(holding, 0, b"abcdef")

    assert append(holding, 3, b"defghi") == 9

    assert stored(holding) == b"abcdefghi"


def test_secrets_and_redacted_variables_are_masked(holding: Holding) -> None:
    Task.objects.update(
        secrets=secrets_sealed({"KEY": "correct horse"}, Task.objects.get()),
        environment={"HF_TOKEN": "hf_abcdef"},
    )

    append(holding, 0, b"key=correct ho")
    append(holding, 14, b"rse hf_")
    append(holding, 21, b"abcdef PATH=/bin\n")

    assert stored(holding) == b"key=************* ********* PATH=/bin\n"


def test_a_secret_that_cannot_be_read_does_not_unmask_the_others(holding: Holding) -> None:
    sealed = secrets_sealed({"KEY": "correct horse"}, Task.objects.get())
    Task.objects.update(secrets={"A": sealed["KEY"], **sealed})

    append(holding, 0, b"key=correct horse\n")

    assert stored(holding) == b"key=*************\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_secret_of_many_pieces_is_masked(holding: Holding, size: int) -> None:
    Task.objects.update(secrets=secrets_sealed({"KEY": "correct horse"}, Task.objects.get()))
    written = b"key=correct horse\n"

    for at in range(0, len(written), size):
        append(holding, at, written[at : at + size])

    assert stored(holding) == b"key=*************\n"


def test_secrets_are_looked_for_before_the_transaction(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    Task.objects.update(secrets=secrets_sealed({"KEY": "correct horse"}, Task.objects.get()))
    depths = []

    def noting(*args: Any) -> tuple[bytes, bytes]:
        depths.append(len(connection.savepoint_ids))
        return masked(*args)

    monkeypatch.setattr(logs, "masked", noting)
    append(holding, 0, b"key=correct horse\n")

    assert depths == [len(connection.savepoint_ids)]


def test_a_piece_that_another_process_stored_meanwhile_is_not_stored_again(
    holding: Holding,
) -> None:
    def other_first() -> AbstractContextManager[None]:
        append(holding, 0, b"abc")
        return transaction.atomic()

    reached = log_append(
        holding_id=holding.pk, offset=0, content=b"abcdef", at=timezone.now(), guard=other_first
    )

    assert reached == 3
    assert stored(holding) == b"abc"


def test_what_its_owner_hides_is_masked_in_all_that_comes(holding: Holding) -> None:
    Task.objects.update(environment={"WANDB_RUN": "abcdef"})
    append(holding, 0, b"run=abcdef\n")

    User.objects.update(redacted_variables=["WANDB_*"])
    append(holding, 11, b"run=abcdef\n")

    assert stored(holding).endswith(b"run=******\n")


def test_pieces_around_a_hole_are_no_whole(holding: Holding) -> None:
    Task.objects.update(secrets=secrets_sealed({"KEY": "correct horse"}, Task.objects.get()))

    append(holding, 0, b"cor")
    append(holding, 30, b"rect horse")

    assert AttemptLog.objects.filter(offset=0).get().data == b"cor"


def test_a_hole_is_marked_as_a_cut(holding: Holding) -> None:
    append(holding, 0, b"abc")

    assert append(holding, 10, b"xyz") == 13

    assert Attempt.objects.get().log_is_cut
    assert log_from(Attempt.objects.get(), rank=0, offset=3).offset == 10


def test_what_comes_after_the_bound_is_dropped_and_the_cut_marked(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 8)
    append(holding, 0, b"12345678")
    assert not Attempt.objects.get().log_is_cut

    assert append(holding, 8, b"9") == 9

    attempt = Attempt.objects.get()
    assert (attempt.log_bytes, attempt.log_is_cut) == (8, True)
    assert stored(holding) == b"12345678"


def test_a_piece_across_the_bound_is_stored_up_to_it(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 8)

    append(holding, 0, b"1234567890")

    assert stored(holding) == b"12345678"
    assert Attempt.objects.get().log_is_cut


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=12))
def test_whatever_pieces_come_doubled_or_overlapping_the_bytes_are_those_written(
    holding: Holding, cuts: list[tuple[int, int]]
) -> None:
    AttemptLog.objects.all().delete()
    Holding.objects.update(log_offset=0)
    written = bytes(range(100))
    reached = 0

    for back, length in cuts:
        offset = max(0, reached - back)
        reached = append(holding, offset, written[offset : offset + length])

    assert stored(holding) == written[:reached]
    assert reached <= len(written)
