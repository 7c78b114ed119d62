"""The pages through HTTP, by people with different permissions."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.accounts.models import Credential, User
from apps.accounts.services.people import setup_token_create, user_create
from apps.configuration.services.queues import profile_connect
from apps.dashboard.render import card_render
from apps.policies.models import Profile
from apps.tasks.models import Task
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


def text(response: object) -> str:
    """The page as somebody reads it: without tags, spaces folded."""
    html = response.content.decode()  # type: ignore[attr-defined]  # Django's test response
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_whoever_is_not_signed_in_is_asked_to(root: User, client: Client) -> None:
    for name in ("overview", "policy_list", "queue_list", "task_list", "resources", "node_list"):
        response = client.get(reverse(name))

        assert response.status_code == 302
        assert response["Location"].startswith("/sign-in/?next=")


def test_an_empty_installation_is_set_up_with_the_token_and_then_never_again(
    client: Client,
) -> None:
    token = setup_token_create()
    form = {"token": token, "username": "ada", "email": "", "password": "a long sentence"}

    assert client.get("/sign-in/")["Location"] == "/set-up/"
    assert client.post("/set-up/", form | {"token": "wrong"}).status_code == 400
    done = client.post("/set-up/", form)

    assert done["Location"] == "/"
    assert User.objects.get().groups.filter(name="Admins").exists()
    assert "Overview" in text(client.get("/"))
    assert Client().post("/set-up/", form | {"username": "eve"})["Location"].startswith("/sign-in/")


def test_signing_in_goes_back_to_the_page_that_was_wanted_and_nowhere_else(
    client: Client, root: User
) -> None:
    user_create(username="ada", password="a long sentence")
    form = {"username": "ada", "password": "a long sentence"}

    assert client.post("/sign-in/", form | {"next": "/tasks/"})["Location"] == "/tasks/"
    outside = client.post("/sign-in/", form | {"next": "https://evil.example/"})

    assert outside["Location"] == "/"
    wrong = client.post("/sign-in/", form | {"password": "no"})
    assert wrong.status_code == 400
    assert "Username or password is wrong. Check both and try again." in text(wrong)
    html = wrong.content.decode()
    assert re.search(r'name="password"[^>]*autofocus', html)
    assert not re.search(r'name="username"[^>]*autofocus', html)


def test_an_administrator_sees_every_pool_and_its_figures(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "first"), example.bare_metal)
    run_in(submit(alice, "second"), example.h100)
    run_in(submit(alice, "third"), example.h100)
    submit(alice, "fourth")

    page = text(client_for(root).get("/"))

    assert "Total 16 GPU in 2 pools" in page
    assert "Used, reserved 8" in page
    assert "Used over quota 4" in page
    assert "3 running 1 waiting" in page
    assert "No node serves it" in page


def test_a_member_sees_the_share_of_the_own_policies_and_no_pool(
    example: Example, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "first"), example.h100)

    page = text(client_for(alice).get("/"))

    assert "Your policies use 4 GPU" in page
    assert "Free to the limit 12" in page
    assert words_on(page, "H100", "Research") == []


def test_a_policy_page_shows_its_use_its_queues_and_what_holds_it(
    example: Example, alice: User, bob: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "tokenizer-sweep"), example.h100)
    submit(alice, "eval-checkpoint")

    page = text(client_for(bob).get(reverse("policy_detail", args=[example.dev.pk])))

    assert "4 in use 4 within reservation 0 over quota 12 free to limit" in page
    assert f"{example.dev_queue.name} 4xGPU 4 GPU 4 GPU Running 1 Waiting 1" in page
    assert "tokenizer-sweep alice 4 Reserved" in page
    assert "Routing order" not in page


def test_an_administrator_sees_the_pools_of_a_queue_in_routing_order(
    example: Example, root: User, client_for: ClientFor
) -> None:
    page = text(client_for(root).get(reverse("policy_detail", args=[example.dev.pk])))

    assert "Routing order 1 Bare Metal Low END GPUs 2 H100 Half a Superpod" in page


def test_a_queue_lists_who_waits_in_which_place(
    example: Example, alice: User, bob: User, client_for: ClientFor, submit: Submit
) -> None:
    submit(alice, "first")
    submit(bob, "second")

    page = text(client_for(bob).get(reverse("queue_detail", args=[example.dev_queue.pk])))

    assert re.search(r"1 1\. first Next alice 0 .* 2 2\. second You 0", page)


def test_a_description_that_will_not_do_says_so_at_its_field(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    form = {"name": "x", "queue": example.dev_queue.name, "command": "echo 'open"}

    unreadable = client_for(alice).post(reverse("task_enqueue"), form)
    too_eager = client_for(alice).post(
        reverse("task_enqueue"), form | {"command": "echo hi", "priority": "99"}
    )

    assert unreadable.status_code == 400
    assert "Cannot be read: No closing quotation" in text(unreadable)
    assert too_eager.status_code == 400
    assert 'id="id_priority_error"' in too_eager.content.decode()
    assert re.search(r'name="priority"[^>]*autofocus', too_eager.content.decode())
    assert not Task.objects.exists()


def test_the_form_says_whether_a_task_would_run_now_and_keeps_what_was_typed(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    client = client_for(alice)
    form = {"name": "x", "queue": example.dev_queue.name, "command": "true", "check": "1"}

    waits = client.post(reverse("task_enqueue"), form)
    make_node(example.bare_metal, name="b1")
    starts = client.post(reverse("task_enqueue"), form)
    nowhere = client.post(reverse("task_enqueue"), form | {"queue": ""})

    assert (waits.status_code, starts.status_code, nowhere.status_code) == (200, 200, 400)
    assert "It would wait. Nothing serves" in text(waits)
    assert "It would start now in your first pool (reserved)." in text(starts)
    assert 'value="x"' in starts.content.decode()
    assert 'id="id_queue_error"' in nowhere.content.decode()
    assert not Task.objects.exists()


def test_a_task_goes_from_the_form_into_its_queue_out_of_it_and_to_its_end(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    client = client_for(alice)
    made = client.post(
        reverse("task_enqueue"),
        {"name": "train", "command": "python -m train 'a b'", "environment": "SEED=7\nQUIET="},
    )
    task = Task.objects.get()
    assert made["Location"] == reverse("task_detail", args=[task.pk])
    assert task.spec.command == ["python", "-m", "train", "a b"]
    assert task.spec.environment == {"SEED": "7", "QUIET": ""}

    steps = [
        ("task_enqueue_draft", {"queue": example.dev_queue.name}, "queued"),
        ("task_dequeue", {}, "draft"),
        ("task_enqueue_draft", {"queue": example.dev_queue.name}, "queued"),
        ("task_abort", {}, "aborted"),
        ("task_run_again", {}, "queued"),
    ]
    for name, form, want_state in steps:
        client.post(reverse(name, args=[task.pk]), form)
        task.refresh_from_db()
        assert task.state == want_state

    page = text(client.get(made["Location"]))
    assert "Events" in page
    assert "Aborted" in page


def test_a_credential_shows_its_secret_once(alice: User, client_for: ClientFor) -> None:
    client = client_for(alice)

    made = client.post(reverse("credential_list"), {"label": "nightly", "scope": "read"})
    again = client.get(reverse("credential_list"))

    secret = re.search(r"data-secret>([^<]+)<", made.content.decode())
    assert secret is not None
    assert secret[1] not in again.content.decode()
    credential = Credential.objects.get()
    client.post(reverse("credential_revoke", args=[credential.pk]))
    credential.refresh_from_db()
    assert credential.revoked_at is not None


def test_nobody_revokes_the_credential_of_another(
    alice: User, charlie: User, client_for: ClientFor
) -> None:
    client_for(alice).post(reverse("credential_list"), {"label": "nightly", "scope": "read"})
    credential = Credential.objects.get()

    response = client_for(charlie).post(reverse("credential_revoke", args=[credential.pk]))

    assert response.status_code == 404
    credential.refresh_from_db()
    assert credential.revoked_at is None


def test_pages_carry_no_inline_script_or_style(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    task = submit(alice, "first")
    run_in(task, example.h100)
    submit(alice, "second")
    pages = [
        reverse(n) for n in ("overview", "policy_list", "queue_list", "task_list", "resources")
    ]
    pages += [
        reverse("policy_detail", args=[example.dev.pk]),
        reverse("queue_detail", args=[example.dev_queue.pk]),
        reverse("task_detail", args=[task.pk]),
        reverse("node_list"),
        reverse("task_enqueue"),
    ]
    for path in pages:
        response = client_for(root).get(path)
        html = response.content.decode()

        assert "unsafe" not in response["Content-Security-Policy"]
        assert "default-src 'self'" in response["Content-Security-Policy"]
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style", html), path
        assert not re.search(r"<script(?![^>]*\ssrc=)", html), path


def test_a_page_that_does_not_exist_says_so_in_our_frame(
    alice: User, client_for: ClientFor
) -> None:
    response = client_for(alice).get("/nowhere/")

    assert response.status_code == 404
    assert "Page not found" in text(response)


def test_a_form_that_was_open_too_long_changes_nothing_and_says_so(root: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(root)

    response = client.post(reverse("credential_list"), {"label": "x", "scope": "read"})

    assert response.status_code == 403
    assert "Nothing was changed" in text(response)
    assert not Credential.objects.exists()


@pytest.mark.parametrize(
    "name", ["overview", "policy_list", "queue_list", "task_list", "resources", "node_list"]
)
def test_a_list_asks_the_same_questions_however_long_it_is(
    name: str,
    example: Example,
    root: User,
    alice: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    client = client_for(root)
    run_in(submit(alice, "one runs"), example.h100)
    submit(alice, "one waits")
    client.get(reverse(name))
    with CaptureQueriesContext(connection) as short:
        client.get(reverse(name))

    for number in range(5):
        submit(alice, f"more {number}")
    run_in(submit(alice, "another runs"), example.bare_metal)
    with CaptureQueriesContext(connection) as long:
        client.get(reverse(name))

    assert len(long) == len(short)
    assert len(long) <= 35


def test_a_policy_page_tells_everybody_about_their_own_tasks(
    example: Example, alice: User, bob: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "hers runs"), example.h100)
    submit(alice, "hers waits")
    submit(bob, "his waits")

    page = text(client_for(bob).get(reverse("policy_detail", args=[example.dev.pk])))

    mine = page[page.index("Your tasks here") :]
    assert "0 running 1 waiting" in mine
    assert "his waits" in mine
    assert f"2nd in {example.dev_queue.name}" in mine
    assert "hers waits" not in mine


def test_many_queues_of_a_policy_wrap_and_few_hang_on_curves(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_detail", args=[example.dev.pk])
    for name in ("2xGPU", "8xGPU", "0.5xGPU"):
        profile_connect(actor=root, policy=example.dev, profile=Profile.objects.get(name=name))
    few = client_for(root).get(path).content.decode()
    fifth = Profile.objects.create(name="another", position=9, request={"gpu": "1"})
    profile_connect(actor=root, policy=example.dev, profile=fifth)

    many = client_for(root).get(path).content.decode()

    assert "branch-row-many" not in few
    assert 'class="branches' in few
    assert "branch-row-many" in many
    assert 'class="branches' not in many


def test_an_empty_installation_tells_an_administrator_where_to_begin(
    root: User, alice: User, quinn: User, client_for: ClientFor
) -> None:
    page = text(client_for(root).get(reverse("resources")))

    assert "Nothing is provisioned yet" in page
    assert "Open the editor" in page
    for person in (alice, quinn):
        page = text(client_for(person).get(reverse("resources")))
        assert "No profile is open to you" in page
        assert "Open the editor" not in page


def test_the_buttons_of_a_task_change_with_its_state_by_themselves(
    example: Example, alice: User, root: User, submit: Submit, run_in: RunIn
) -> None:
    task, other = submit(alice, "train"), submit(alice, "other")

    def buttons(task: Task, user: User) -> str:
        rendered = card_render("task_head", str(task.pk), user)
        assert rendered is not None
        return rendered.html

    waiting = buttons(task, alice)
    run_in(task, example.h100)
    running = buttons(task, alice)
    task_dequeue(actor=alice, task=other)
    draft, of_another = buttons(other, alice), buttons(other, root)
    task_abort(actor=alice, task=other)
    ended = buttons(other, alice)

    assert "task-dequeue" in waiting
    assert "abort-dialog" in waiting
    assert "task-dequeue" not in running
    assert "abort-dialog" in running
    assert f"<option>{example.dev_queue.name}</option>" in draft
    assert "task-enqueue" not in of_another
    assert "task-run-again" in ended
    assert "abort-dialog" not in ended
