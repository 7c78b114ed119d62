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
from apps.tasks.log_masks import mask_piece
from apps.tasks.models import Attempt, AttemptLog, Member, Task
from apps.tasks.selectors.attempts import log_from
from apps.tasks.services.enqueue.task_secrets import seal_secrets
from apps.tasks.services.members import logs
from apps.tasks.services.members.logs import log_append
from tests.allocation.state import change_content, enqueue, make_node
from tests.people import Example


@pytest.fixture
def member(example: Example, alice: User) -> Member:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    return Member.objects.get()


def append(member: Member, offset: int, content: bytes) -> int:
    return log_append(member_id=member.pk, offset=offset, content=content, at=timezone.now())


def stored(member: Member) -> bytes:
    return log_from(Attempt.objects.get(), rank=member.rank, offset=0).data


def test_pieces_are_put_together(member: Member) -> None:
    assert append(member, 0, b"step 1\n") == 7
    assert append(member, 7, b"step 2\n") == 14

    assert stored(member) == b"step 1\nstep 2\n"
    attempt = Attempt.objects.get()
    assert (attempt.log_bytes, attempt.log_is_cut) == (14, False)


def test_a_piece_that_comes_twice_is_stored_once(member: Member) -> None:
    append(member, 0, b"step 1\n")

    assert append(member, 0, b"step 1\n") == 7

    assert AttemptLog.objects.count() == 1
    assert Attempt.objects.get().log_bytes == 7


def test_of_an_overlapping_piece_only_the_new_part_is_stored(member: Member) -> None:
    append(member, 0, b"abcdef")

    assert append(member, 3, b"defghi") == 9

    assert stored(member) == b"abcdefghi"


def test_secrets_and_redacted_variables_are_masked(member: Member) -> None:
    Task.objects.update(secrets=seal_secrets({"KEY": "correct horse"}, Task.objects.get()))
    change_content(environment={"HF_TOKEN": "hf_abcdef"})

    append(member, 0, b"key=correct ho")
    append(member, 14, b"rse hf_")
    append(member, 21, b"abcdef PATH=/bin\n")

    assert stored(member) == b"key=************* ********* PATH=/bin\n"


def test_a_secret_that_cannot_be_read_does_not_unmask_the_others(member: Member) -> None:
    sealed = seal_secrets({"KEY": "correct horse"}, Task.objects.get())
    Task.objects.update(secrets={"A": sealed["KEY"], **sealed})

    append(member, 0, b"key=correct horse\n")

    assert stored(member) == b"key=*************\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_secret_of_many_pieces_is_masked(member: Member, size: int) -> None:
    Task.objects.update(secrets=seal_secrets({"KEY": "correct horse"}, Task.objects.get()))
    written = b"key=correct horse\n"

    for at in range(0, len(written), size):
        append(member, at, written[at : at + size])

    assert stored(member) == b"key=*************\n"


def test_secrets_are_looked_for_before_the_transaction(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    Task.objects.update(secrets=seal_secrets({"KEY": "correct horse"}, Task.objects.get()))
    depths = []

    def noting(*args: Any) -> tuple[bytes, bytes]:
        depths.append(len(connection.savepoint_ids))
        return mask_piece(*args)

    monkeypatch.setattr(logs, "mask_piece", noting)
    append(member, 0, b"key=correct horse\n")

    assert depths == [len(connection.savepoint_ids)]


def test_a_piece_that_another_process_stored_meanwhile_is_not_stored_again(
    member: Member,
) -> None:
    def other_first() -> AbstractContextManager[None]:
        append(member, 0, b"abc")
        return transaction.atomic()

    reached = log_append(
        member_id=member.pk, offset=0, content=b"abcdef", at=timezone.now(), guard=other_first
    )

    assert reached == 3
    assert stored(member) == b"abc"


def test_what_its_owner_hides_is_masked_in_all_that_comes(member: Member) -> None:
    change_content(environment={"WANDB_RUN": "abcdef"})
    append(member, 0, b"run=abcdef\n")

    User.objects.update(redacted_variables=["WANDB_*"])
    append(member, 11, b"run=abcdef\n")

    assert stored(member).endswith(b"run=******\n")


def test_pieces_around_a_hole_are_no_whole(member: Member) -> None:
    Task.objects.update(secrets=seal_secrets({"KEY": "correct horse"}, Task.objects.get()))

    append(member, 0, b"cor")
    append(member, 30, b"rect horse")

    assert AttemptLog.objects.filter(offset=0).get().data == b"cor"


def test_a_hole_is_marked_as_a_cut(member: Member) -> None:
    append(member, 0, b"abc")

    assert append(member, 10, b"xyz") == 13

    assert Attempt.objects.get().log_is_cut
    assert log_from(Attempt.objects.get(), rank=0, offset=3).offset == 10


def test_a_hole_at_the_end_moves_the_offset_and_marks_the_cut(member: Member) -> None:
    append(member, 0, b"written")

    assert append(member, 20, b"") == 20

    member.refresh_from_db()
    assert (member.log_offset, Attempt.objects.get().log_is_cut) == (20, True)


def test_what_comes_after_the_bound_is_dropped_and_the_cut_marked(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 8)
    append(member, 0, b"12345678")
    assert not Attempt.objects.get().log_is_cut

    assert append(member, 8, b"9") == 9

    attempt = Attempt.objects.get()
    assert (attempt.log_bytes, attempt.log_is_cut) == (8, True)
    assert stored(member) == b"12345678"


def test_a_piece_across_the_bound_is_stored_up_to_it(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 8)

    append(member, 0, b"1234567890")

    assert stored(member) == b"12345678"
    assert Attempt.objects.get().log_is_cut


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=12))
def test_whatever_pieces_come_doubled_or_overlapping_the_bytes_are_those_written(
    member: Member, cuts: list[tuple[int, int]]
) -> None:
    AttemptLog.objects.all().delete()
    Member.objects.update(log_offset=0)
    written = bytes(range(100))
    reached = 0

    for back, length in cuts:
        offset = max(0, reached - back)
        reached = append(member, offset, written[offset : offset + length])

    assert stored(member) == written[:reached]
    assert reached <= len(written)
