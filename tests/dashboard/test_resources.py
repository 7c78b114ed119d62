"""The provisioned configuration: switch, pools, history and YAML, through HTTP."""

import msgspec
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_changes, draft_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.pools import pool_pause
from apps.dashboard.render import card_render
from apps.policies.document import as_yaml, parse
from apps.policies.models import DraftState, LiveState, Pool
from apps.tasks.models import Attempt
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import folded
from tests.dashboard.test_pages import text
from tests.people import EXAMPLE, Example

pytestmark = pytest.mark.django_db


def saved(actor: User, *, capacity: str = "12") -> None:
    """The draft with another capacity of its first pool."""
    draft = draft_document()
    first = msgspec.structs.replace(draft.pools[0], capacity={"gpu": capacity})
    draft_write(
        document=msgspec.structs.replace(draft, pools=(first, *draft.pools[1:])), actor=actor
    )


def board(user: User) -> str:
    rendered = card_render("resource_board", "", user)
    assert rendered is not None
    return " ".join(rendered.html.split())


def test_the_old_address_leads_to_the_new_one_for_good(alice: User, client_for: ClientFor) -> None:
    response = client_for(alice).get("/resources/")

    assert response.status_code == 301
    assert response["Location"] == reverse("resources") == "/settings/resources/"


def test_only_administrators_reach_anything_behind_the_board(
    example: Example, alice: User, quinn: User, root: User, client_for: ClientFor
) -> None:
    number = Revision.objects.first()
    assert number is not None
    paths = [
        reverse("resource_switch"),
        reverse("pool_info", args=[example.h100.pk]),
        reverse("pool_pause", args=[example.h100.pk]),
        reverse("resource_yaml"),
        reverse("resource_yaml_download", args=["live"]),
        reverse("revision_list"),
        reverse("revision_detail", args=[number.pk]),
        reverse("revision_yaml", args=[number.pk]),
        reverse("revision_restore", args=[number.pk]),
    ]
    for path in paths:
        assert client_for(alice).get(path).status_code == 404, path
        assert client_for(quinn).get(path).status_code == 404, path
        assert client_for(alice).post(path).status_code in {404, 405}, path
        assert client_for(root).get(path).status_code == 200, path
    page = client_for(alice).get(reverse("resources")).content.decode()
    assert "/settings/resources/" not in page.replace('href="/settings/resources/"', "")
    assert card_render("resource_state", "", alice) is None
    assert LiveState.objects.get(id=1).is_enabled


def test_switching_off_says_what_it_stops_and_on_again_asks_nothing(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "runs"), example.h100)
    submit(alice, "waits")
    client = client_for(root)
    path = reverse("resource_switch")

    asked = text(client.get(path))
    client.post(path, {"is_enabled": "0"})
    off = text(client.get(reverse("resources")))
    client.post(path, {"is_enabled": "1"})

    assert "1 waiting task stays where it is, in 1 queue" in asked
    assert "1 running task goes on and is supervised" in asked
    assert "Off: no task is admitted or preempted" in off
    assert LiveState.objects.get(id=1).is_enabled


def test_a_pool_is_paused_with_a_reason_and_resumed(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    path = reverse("pool_pause", args=[example.h100.pk])

    assert "Nothing new starts in this pool" in text(client.get(path))
    assert client.post(path, {"reason": "x" * 501}).status_code == 400
    assert client.post(path, {"reason": "budget review"}).status_code == 302
    paused = board(root)
    client.post(reverse("pool_resume", args=[example.h100.pk]))

    assert "budget review" in paused
    assert "Resume H100 Half a Superpod" in paused
    assert Pool.objects.get(pk=example.h100.pk).paused_at is None


def test_what_is_saved_and_not_provisioned_is_shown(example: Example, root: User) -> None:
    before = card_render("resource_state", "", root)
    saved(root)
    after = card_render("resource_state", "", root)

    assert before is not None
    assert after is not None
    assert "not provisioned" not in before.html
    assert "Saved, not provisioned: 1 change" in folded(after.html)
    assert "by root" in after.html


def test_every_key_of_a_pool_has_its_use(
    example: Example, root: User, alice: User, submit: Submit, run_in: RunIn
) -> None:
    Pool.objects.filter(pk=example.h100.pk).update(
        capacity={"gpu": "8", "cpu": "64", "memory_mb": "65536"}
    )
    run_in(submit(alice, "runs"), example.h100)
    Attempt.objects.update(request={"gpu": 4000, "cpu": 16000, "memory_mb": 512_000})

    html = board(root)

    assert ">16 of 64 CPU<" in html
    assert ">512 MB of 64 GB<" in html


def test_a_pool_tells_its_profiles_and_their_queues(
    example: Example, root: User, client_for: ClientFor
) -> None:
    page = text(client_for(root).get(reverse("pool_info", args=[example.h100.pk])))

    assert "Link “4 GPU H100 link”, choice 2 of the profile" in page
    assert f"{example.dev_queue.name} id {example.dev_queue.pk} Dev" in page


def test_the_same_page_is_only_its_content_in_a_dialog(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("pool_info", args=[example.h100.pk])

    response = client_for(root).get(path, headers={"X-Requested-With": "dialog"})

    assert "<html" not in response.content.decode()
    assert "<h2" in response.content.decode()
    assert "X-Requested-With" in response["Vary"]


def test_history_tells_what_each_revision_changed(
    example: Example, root: User, client_for: ClientFor
) -> None:
    page = text(client_for(root).get(reverse("revision_list")))

    assert "The worked example." in page
    assert "Dev added" in page
    last = Revision.objects.order_by("-number").first()
    assert last is not None
    detail = text(client_for(root).get(reverse("revision_detail", args=[last.number])))
    assert f"Difference to revision {last.number - 1}" in detail


def test_any_two_revisions_are_compared(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    numbers = sorted(Revision.objects.values_list("number", flat=True))

    sent = client.get(reverse("revision_list"), {"from": numbers[-1], "to": numbers[0]})
    page = text(client.get(sent["Location"]))

    assert sent["Location"].endswith(f"/{numbers[-1]}/?with={numbers[0]}")
    assert f"Difference to revision {numbers[0]}" in page
    assert "Research added" in page
    path = reverse("revision_detail", args=[numbers[0]])
    assert client.get(path, {"with": "9" * 30}).status_code == 404
    assert client.get(path, {"with": "none"}).status_code == 404


def test_restoring_says_what_it_throws_away_and_refuses_who_read_another_draft(
    example: Example, root: User, client_for: ClientFor
) -> None:
    saved(root)
    client = client_for(root)
    path = reverse("revision_restore", args=[1])
    version = DraftState.objects.get(id=1).version

    asked = text(client.get(path))
    stale = client.post(path, {"version": version - 1})
    done = client.post(path, {"version": version})

    assert "1 saved change of the draft is discarded" in asked
    assert stale.status_code == 412
    assert "root changed" in text(stale)
    assert done.status_code == 302
    assert not [one for one in draft_changes() if one.kind == "pools"]


def test_the_document_goes_out_and_comes_in_as_yaml(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    live = client.get(reverse("resource_yaml_download", args=["live"]))
    assert live["Content-Disposition"] == 'attachment; filename="rpm-live.yaml"'
    changed = live.content.decode().replace("'8'", "'12'", 1)
    version = DraftState.objects.get(id=1).version

    upload = SimpleUploadedFile("rpm.yaml", changed.encode())
    done = client.post(reverse("resource_yaml"), {"file": upload, "version": version})

    assert done.status_code == 302
    assert draft_document().pools[0].capacity == {"gpu": "12"}
    assert client.get(reverse("resource_yaml_download", args=["neither"])).status_code == 404


def test_what_will_not_do_is_named_by_its_path_and_the_text_stays(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    path = reverse("resource_yaml")
    before = as_yaml(draft_document())
    version = DraftState.objects.get(id=1).version
    wrong = {**EXAMPLE, "pools": [{"name": "A", "capacity": "many"}]}
    texts = {
        "pools[0].capacity.gpu must be a number": str(wrong).replace("'", '"'),
        "This is not YAML": "a: [",
        "must be an object": "- 1",
        "Choose a file or put the text here": " ",
    }
    for want, given in texts.items():
        response = client.post(path, {"text": given, "version": version})

        assert response.status_code == 400
        assert want in text(response)
        assert given.strip() in response.content.decode().replace("&quot;", '"')
    broken = SimpleUploadedFile("rpm.yaml", b"\xff\xfe\x00")
    assert "not UTF-8" in text(client.post(path, {"file": broken, "version": version}))
    assert as_yaml(draft_document()) == before


def test_an_import_over_somebody_elses_changes_is_refused_and_then_allowed(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    version = DraftState.objects.get(id=1).version
    given = as_yaml(parse(EXAMPLE))
    saved(root)

    refused = client.post(reverse("resource_yaml"), {"text": given, "version": version})
    html = refused.content.decode()
    newer = DraftState.objects.get(id=1).version
    done = client.post(reverse("resource_yaml"), {"text": given, "version": newer})

    assert refused.status_code == 400
    assert "root changed" in text(refused)
    assert f'name="version" value="{newer}"' in html
    assert done.status_code == 302


def test_an_empty_history_says_what_makes_the_first(root: User, client_for: ClientFor) -> None:
    assert "No revision yet" in text(client_for(root).get(reverse("revision_list")))


def test_pages_behind_the_board_carry_no_inline_script(
    example: Example, root: User, client_for: ClientFor
) -> None:
    pool_pause(actor=root, pool=example.h100, reason="<script>alert(1)</script>")

    html = client_for(root).get(reverse("pool_info", args=[example.h100.pk])).content.decode()

    assert "<script>alert" not in html
    assert "style=" not in html
