"""Which images a queue takes."""

import pytest

from apps.accounts.models import User
from apps.nodes.models import Node
from apps.nodes.services import node_drop
from apps.policies.models import Pool
from apps.tasks.models import Task
from apps.vaults.services.vaults import vault_create
from tests.allocation.state import make_node
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, As, post, wanted

pytestmark = pytest.mark.django_db


def test_an_image_outside_the_list_of_a_pool_is_refused_by_its_field(
    api_as: As, alice: User, example: Example
) -> None:
    Pool.objects.update(allowed_images=["registry.example.org/team/*", "busybox:1"])

    answer = post(api_as(alice), body=wanted(example, image="registry.example.org/other/x"))

    assert answer.status_code == 400
    assert answer.json()["fields"] == {
        "image": "is not allowed in this queue, only: registry.example.org/team/*, busybox:1"
    }
    assert not Task.objects.exists()


def test_an_image_of_the_list_is_taken(api_as: As, alice: User, example: Example) -> None:
    Pool.objects.update(allowed_images=["registry.example.org/team/*"])

    answer = post(api_as(alice), body=wanted(example, image="registry.example.org/team/x:1"))

    assert answer.status_code == 201, answer.content


@pytest.mark.parametrize("others", [[], ["process"]])
def test_without_an_image_it_is_refused_where_a_node_runs_containers(
    api_as: As, alice: User, example: Example, others: list[str]
) -> None:
    for number, runtime in enumerate([*others, "podman"]):
        make_node(example.h100, name=f"n{number}", runtime=runtime)
    body = wanted(example) | {"image": ""}

    answer = post(api_as(alice), body=body)

    assert answer.status_code == 400
    assert answer.json()["fields"] == {"image": "is missing: nodes of this queue run containers"}
    node_drop(actor=None, node=Node.objects.get(runtime="podman"), notes={})
    assert post(api_as(alice), body=body).status_code == 201


def test_an_image_of_a_vault_will_do(api_as: As, alice: User, example: Example) -> None:
    make_node(example.h100, name="n1", runtime="podman")
    vault_create(actor=alice, name="mine", text="container.image = a/b", is_active=True)
    without = wanted(example) | {"image": ""}

    answer = post(api_as(alice), body=without)
    several = post(api_as(alice), f"{TASKS}bulk/", [without, without])
    draft = post(api_as(alice), body={"name": "t", "command": ["true"]}).json()["id"]
    queue = {"queue": example.dev_queue.name}
    enqueued = post(api_as(alice), f"{TASKS}{draft}/enqueue/", queue)

    assert answer.status_code == 201, answer.content
    assert enqueued.status_code == 200, enqueued.content
    assert several.status_code < 300, several.content
    assert Task.objects.filter(content__image="", state="queued").count() == 4


def test_a_draft_is_judged_when_it_is_enqueued(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    draft = post(client, body={"name": "t", "image": "busybox"}).json()
    Pool.objects.update(allowed_images=["registry.example.org/*"])

    answer = post(client, f"{TASKS}{draft['id']}/enqueue/", {"queue": example.dev_queue.name})

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == ["image"]


@pytest.mark.parametrize("image", ["dir:/etc", "oci-archive:/tmp/x.tar", "-v/:/host", "0a" * 32])
def test_what_is_no_image_is_refused(api_as: As, alice: User, example: Example, image: str) -> None:
    answer = post(api_as(alice), body=wanted(example, image=image))

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == ["image"]
