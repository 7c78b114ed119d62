"""The log on a task's page."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.dashboard.render import card_render
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Attempt, AttemptLog, Member, Task
from apps.tasks.services.members.logs import log_append
from tests.allocation.state import enqueue, make_node
from tests.dashboard.page_reader import folded
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def running(example: Example, alice: User) -> Task:
    make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    return task


def shown(task: Task, viewer: User) -> str:
    card = card_render("task_log", str(task.pk), viewer)
    assert card is not None
    return folded(card.html)


def test_colours_are_shown_and_other_control_sequences_are_not(running: Task, alice: User) -> None:
    content = b"\x1b[2J\x1b[1;31m<b>bad</b>\x1b[0m end\n10%\r99%\n"
    member = Member.objects.get()
    log_append(member_id=member.pk, offset=0, content=content, at=timezone.now())

    html = shown(running, alice)

    assert '<span class="term-bold term-fg1">&lt;b&gt;bad&lt;/b&gt;</span> end</div>' in html
    assert '<div class="ln1">99%</div>' in html
    assert "\x1b" not in html
    assert words_on(html, "10%") == []


def test_output_that_is_kept_no_longer_is_said_to_be_gone(running: Task, alice: User) -> None:
    member = Member.objects.get()
    log_append(member_id=member.pk, offset=0, content=b"hello\n", at=timezone.now())
    Attempt.objects.update(
        state=AttemptState.FINISHED, ended_at=timezone.now() - timedelta(days=400)
    )
    AttemptLog.objects.all().delete()

    assert "The log has expired." in shown(running, alice)
