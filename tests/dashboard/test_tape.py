"""The tape: which blocks each reader sees, where they stand, and at what cost."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.allocation.explanation import ExpectedStart
from apps.configuration.services.tenants import tenant_create
from apps.dashboard.cards.tape import Tape, load_tape
from apps.dashboard.cards.tape_geometry import (
    TapeBlock,
    TapePiece,
    TimeWindow,
    blocks_of,
    contiguous,
)
from apps.dashboard.cards.tape_query import TapeQuery
from apps.dashboard.cards.tape_starts import TapeStart, start_of
from apps.dashboard.selectors.tape import packed
from apps.nodes.models import Device, DeviceState, Node
from apps.tasks.models import Attempt, Member, PastTier, TaskGroup
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db
AT = datetime(2026, 3, 9, 12, tzinfo=UTC)


def at(hours: float) -> datetime:
    return AT + timedelta(hours=hours)


@pytest.fixture
def node(example: Example) -> Node:
    node = make_node(example.h100, name="h100-1")
    node.devices.all().delete()
    for index in range(8):
        Device.objects.create(node=node, index=index, uuid=f"GPU-{index}", model="H100")
    return node


def hold(attempt: Attempt, node: Node, *indices: int, milli: int = 1000) -> None:
    """Let an attempt hold these devices as long as it lives."""
    Member.objects.filter(attempt=attempt).update(
        node=node, devices=[[index, milli] for index in indices]
    )


@pytest.fixture
def ran(
    example: Example,
    node: Node,
    alice: User,
    charlie: User,
    submit: Submit,
    run_in: RunIn,
    monkeypatch: pytest.MonkeyPatch,
) -> list[Attempt]:
    """Dev has held GPU 0 to 3 for 12 hours, Research GPU 4, 5 and 7 for six.

    The clock stands: places are exact however long the test takes.
    """
    now = timezone.now()
    theirs = submit(charlie, "theirs", queue=example.research_queue.name)
    ours = run_in(submit(alice, "ours"), example.h100, since=now - timedelta(hours=12))
    others = run_in(theirs, example.h100, since=now - timedelta(hours=6))
    hold(ours, node, 0, 1, 2, 3)
    hold(others, node, 4, 5, 7)
    monkeypatch.setattr(timezone, "now", lambda: now)
    return [ours, others]


def blocks(tape: Tape) -> list[TapeBlock]:
    return [block for section in tape.sections for row in section.rows for block in row.blocks]


def tape_for(user: User, query: str = "") -> Tape:
    return load_tape(user, TapeQuery.parse(query))


@pytest.mark.usefixtures("ran")
def test_an_administrator_sees_each_node_with_what_it_ran(
    example: Example, root: User, node: Node
) -> None:
    tape = tape_for(root)

    (section,) = tape.sections
    (row,) = section.rows
    assert (section.name, row.name, row.detail) == (example.h100.name, "h100-1", "8 GPU, H100")
    assert row.href == f"/nodes/{node.pk}/"
    assert [(b.y, b.height, b.kind) for b in row.blocks] == [
        (0.0, 55.0, "policy"),
        (56.0, 27.0, "profile"),
        (98.0, 13.0, "profile"),
    ]
    assert tape.series == (("Dev", "policy"), ("Research", "profile"))
    first = row.blocks[0]
    assert first.label.startswith("ours, Dev, alice: 4 GPU on h100-1 (0 to 3), since ")
    assert (first.x, first.width) == ("40%", "40%")
    assert first.href.startswith("/tasks/")
    assert tape.axis.now_x == "80%"


@pytest.mark.usefixtures("ran")
def test_without_pools_a_member_sees_the_tasks_of_their_policies(
    alice: User, client_for: ClientFor
) -> None:
    (section,) = tape_for(alice).sections

    assert [(row.name, len(row.blocks)) for row in section.rows] == [("Dev", 1)]
    for query in ("", "?table=1"):
        page = client_for(alice).get(f"/tape/{query}").content.decode()
        assert words_on(page, "theirs", "Research", "charlie", "h100-1") == []
        assert "ours" in page


@pytest.mark.usefixtures("ran")
def test_with_a_pool_a_member_sees_others_work_without_names(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    assign_perm("view_pool", alice, example.h100)

    tape = tape_for(alice)

    own, *others = blocks(tape)
    assert own.text == "ours"
    assert {(one.text, one.href, one.kind) for one in others} == {("", "", "wait")}
    assert all(
        one.label.startswith("Another policy: 3 GPU on h100-1 (4 to 5, 7)") for one in others
    )
    assert tape.series == (("Dev", "policy"), ("Others", "wait"))
    assert tape.sections[0].rows[0].href == ""
    for query in ("", "?table=1"):
        page = client_for(alice).get(f"/tape/{query}").content.decode()
        assert words_on(page, "theirs", "Research", "charlie") == []


@pytest.mark.usefixtures("ran")
def test_a_tenant_does_not_see_when_another_one_held_a_gpu(
    example: Example, root: User, alice: User, bob: User
) -> None:
    assign_perm("view_pool", alice, example.h100)
    first, second = (Group.objects.create(name=name) for name in ("Heads A", "Heads B"))
    for top, group in ((example.dev, first), (example.research, second)):
        tenant_create(actor=root, top=top, admin_group=group, groups=[top.group])

    member = User.objects.get(pk=alice.pk)
    assert [one.text for one in blocks(tape_for(member))] == ["ours"]
    assert len(blocks(tape_for(root))) == 3


@pytest.mark.usefixtures("ran")
def test_somebody_without_permissions_sees_nothing(client_for: ClientFor) -> None:
    outsider = User.objects.create(username="outsider")

    assert blocks(tape_for(outsider)) == []
    assert "Nothing ran" in text(client_for(outsider).get("/tape/"))


def test_what_counted_as_over_quota_is_hatched_for_that_time(
    root: User, ran: list[Attempt]
) -> None:
    Attempt.objects.filter(pk=ran[0].pk).update(tier="reserved")
    PastTier.objects.create(
        attempt=ran[0], tier="over_quota", until=timezone.now() - timedelta(hours=9)
    )
    Attempt.objects.filter(pk=ran[1].pk).update(tier="over_quota")

    first, second, _ = blocks(tape_for(root))

    assert [(part.x, part.width) for part in first.over] == [("0%", "25%")]
    assert [(part.x, part.width) for part in second.over] == [("0%", "100%")]


def test_running_tasks_go_on_until_their_time_limit(root: User, ran: list[Attempt]) -> None:
    task = ran[0].task
    task.time_limit_s = 15 * 3600
    task.save()

    first, second, _ = blocks(tape_for(root))

    assert first.ahead is not None
    assert (first.ahead.x, first.ahead.width) == ("80%", "10%")
    assert second.ahead is not None
    assert second.ahead.width == "20%"


def test_shares_of_one_gpu_stand_below_each_other(
    example: Example, node: Node, root: User, alice: User, submit: Submit, run_in: RunIn
) -> None:
    since = timezone.now() - timedelta(hours=2)
    for name in ("a", "b"):
        hold(run_in(submit(alice, name), example.h100, since=since), node, 2, milli=500)

    assert sorted((one.y, one.height) for one in blocks(tape_for(root))) == [
        (28.0, 6.0),
        (35.0, 6.0),
    ]


def test_a_gpu_that_is_missing_is_closed_from_now_on(node: Node, root: User) -> None:
    node.devices.filter(index=3).update(state=DeviceState.MISSING)

    (row,) = tape_for(root).sections[0].rows

    assert row.note == "1 GPU unavailable"
    assert row.closed == ((42, 14),)


def test_where_too_much_ran_ones_own_policies_and_long_attempts_stay(
    example: Example,
    node: Node,
    alice: User,
    charlie: User,
    root: User,
    submit: Submit,
    run_in: RunIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assign_perm("policies.view_pool", alice, example.h100)
    monkeypatch.setattr("apps.dashboard.selectors.tape.MOST_ATTEMPTS", 2)
    now = timezone.now()
    hours_ago = {"ours": 0.2, "longer": 3, "long": 5, "short": 1}
    for index, (name, hours) in enumerate(hours_ago.items()):
        who, queue = (alice, example.dev_queue) if name == "ours" else (charlie, None)
        task = submit(who, name, queue=(queue or example.research_queue).name)
        hold(run_in(task, example.h100, since=now - timedelta(hours=hours)), node, index)

    ours, others = tape_for(alice), tape_for(root)

    assert [one.task for one in ours.lines] == ["ours", ""]
    assert [one.task for one in others.lines] == ["longer", "long"]
    assert ours.is_cut
    assert others.is_cut


@pytest.mark.usefixtures("ran")
def test_earlier_hours_are_links(root: User, client_for: ClientFor) -> None:
    page = client_for(root).get("/tape/").content.decode()

    assert "?hours=24&amp;back=12" in page
    assert "Later" not in page
    tape = tape_for(root, "hours=6&back=3")
    assert (tape.axis.now_x, len(blocks(tape))) == (None, 3)
    assert blocks(tape_for(root, "hours=6&back=24")) == []
    assert "Now</a>" in client_for(root).get("/tape/?hours=6&back=24").content.decode()


@pytest.mark.parametrize(
    "query", ["hours=x&back=-1&table=2", "back=99999999999", "hours=72&table=1"]
)
def test_a_wrong_address_shows_a_tape(root: User, client_for: ClientFor, query: str) -> None:
    assert client_for(root).get(f"/tape/?{query}").status_code == 200


@pytest.mark.parametrize("query", ["", "table=1"])
def test_the_number_of_queries_does_not_grow(
    example: Example,
    node: Node,
    root: User,
    alice: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
    query: str,
) -> None:
    hold(run_in(submit(alice, "first"), example.h100), node, 0)
    client = client_for(root)
    client.get(f"/tape/?{query}")
    with CaptureQueriesContext(connection) as few:
        client.get(f"/tape/?{query}")
    for number in range(1, 7):
        hold(run_in(submit(alice, f"t{number}"), example.h100), node, number)
        make_node(example.h100, name=f"h100-{number + 1}")

    with CaptureQueriesContext(connection) as many:
        client.get(f"/tape/?{query}")

    assert len(many) == len(few)
    assert len(many) <= 30


# --- expected starts ---------------------------------------------------------------------------


def test_expected_starts_are_those_of_tasks_that_the_reader_sees(
    example: Example, alice: User, charlie: User, client_for: ClientFor, submit: Submit
) -> None:
    task = submit(alice, "soon")
    TaskGroup.objects.update(head_id=task.pk)

    assert "soon" in text(client_for(alice).get("/tape/starts/"))
    assert words_on(client_for(charlie).get("/tape/starts/").content.decode(), "soon") == []


def test_an_expected_start_is_a_stretch_of_time(alice: User, submit: Submit) -> None:
    window, task = TimeWindow(at(0), at(10), at(8)), submit(alice, "soon")

    def start(first: float | None, last: float | None) -> TapeStart:
        earliest, latest = (None if hours is None else at(hours) for hours in (first, last))
        expected = ExpectedStart("queue", "Why.", earliest=earliest, latest=latest)
        return start_of(task, expected, window, ZoneInfo("UTC"))

    both = start(8.5, 9)
    assert both.stretch is not None
    assert (both.stretch.x, both.stretch.width) == ("85%", "5%")
    assert (both.words, both.is_open) == ("20:30 to 21:00", False)
    open_end = start(9, None)
    assert open_end.stretch is not None
    assert (open_end.stretch.width, open_end.words) == ("10%", "21:00 or later")
    assert (start(11, 12).stretch, start(11, 12).is_open) == (None, True)
    assert (start(None, None).stretch, start(None, None).words) == (None, "Why.")


# --- geometry ----------------------------------------------------------------------------------


def test_pieces_are_drawn_within_the_window() -> None:
    window = TimeWindow(at(0), at(10), at(8))
    piece = TapePiece(
        at(2), at(6), 2000, 4000, "use", "train", "train on it", over=((at(1), at(3)),)
    )

    (block,) = blocks_of([piece], window, 7)

    assert (block.x, block.width, block.y, block.height) == ("20%", "40%", 14, 27)
    assert [(one.x, one.width) for one in block.over] == [("0%", "25%")]
    assert (block.text, block.ahead) == ("train", None)


def test_small_blocks_are_seen_but_have_no_name() -> None:
    window = TimeWindow(at(0), at(100), at(80))
    piece = TapePiece(at(2), at(2), 0, 100, "use", "train", "train on it")

    (block,) = blocks_of([piece], window, 7)

    assert (block.width, block.height, block.text) == ("0.15%", 2, "")


def test_numbers_that_follow_each_other_are_one_stretch() -> None:
    assert contiguous([]) == []
    assert contiguous([0, 1, 2, 5, 7, 8]) == [(0, 3), (5, 1), (7, 2)]


@pytest.mark.parametrize(
    ("stretches", "want_offsets"),
    [
        pytest.param([(0, 2, 1), (2, 4, 1)], [0, 0], id="one after the other"),
        pytest.param([(0, 3, 2), (1, 4, 1), (2, 5, 4)], [0, 2, 3], id="at the same time"),
        pytest.param([(0, 2, 2), (0, 9, 1), (3, 5, 2), (3, 5, 1)], [0, 2, 0, 3], id="a gap"),
        pytest.param([(0, 2, 2), (0, 9, 1), (3, 5, 3)], [0, 2, 3], id="too small a gap"),
    ],
)
def test_stretches_are_packed_without_overlap(
    stretches: list[tuple[int, int, int]], want_offsets: list[int]
) -> None:
    assert packed([(at(a), at(b), amount) for a, b, amount in stretches]) == want_offsets
