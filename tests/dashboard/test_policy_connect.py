"""Connecting profiles to a policy, through HTTP."""

import re

import pytest
from django.urls import reverse

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change
from apps.policies.models import Profile, Queue
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import errors_at
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_a_profile_is_connected_under_the_suggested_name(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_connect", args=[example.dev.pk])
    two = Profile.objects.get(name="2xGPU")
    client = client_for(root)

    opened = client.get(path).content.decode()
    name = client.get(reverse("policy_queue_name", args=[example.dev.pk]), {"profile": two.pk})
    client.post(path, {"profile": str(two.pk), "name": "dev-2xgpu"})

    assert words_on(opened, "4xGPU") == []
    assert 'value="dev-2xgpu"' in name.content.decode()
    assert Queue.objects.get(name="dev-2xgpu").policy == example.dev


def test_several_profiles_are_connected_at_once_under_suggested_names(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_connect", args=[example.dev.pk])
    keys = {one.name: str(one.pk) for one in Profile.objects.all()}
    form = {"profile": keys["2xGPU"], "name": "first"}
    others = [keys["2xGPU"], keys["8xGPU"], keys["0.5xGPU"]]

    opened = client_for(root).get(path).content.decode()
    client_for(root).post(path, {**form, "others": others})

    offered = re.findall(r'name="others" value="(\d+)"', opened)
    assert set(offered) == set(others)
    names = set(example.dev.queues.exclude(pk=example.dev_queue.pk).values_list("name", flat=True))
    assert names == {"first", "dev-8xgpu", "dev-05xgpu"}


def test_where_one_of_several_profiles_cannot_be_connected_none_is(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_connect", args=[example.dev.pk])
    keys = {one.name: str(one.pk) for one in Profile.objects.all()}
    form = {"profile": keys["2xGPU"], "name": "first", "others": [keys["8xGPU"], keys["4xGPU"]]}
    client = client_for(root)

    # 4xGPU is connected already.
    refused = client.post(path, form)

    assert refused.status_code == 400
    assert Queue.objects.filter(policy=example.dev).count() == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("", "Enter a value for “Queue name”.", id="empty"),
        pytest.param("research-4xgpu", "taken", id="taken"),
        pytest.param("Dev 2", "small letters", id="not its signs"),
    ],
)
def test_a_queue_name_that_will_not_do_is_refused_at_its_field(
    name: str, sentence: str, example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_connect", args=[example.dev.pk])
    form = {"profile": str(Profile.objects.get(name="2xGPU").pk), "name": name}

    answer = client_for(root).post(path, form)

    assert answer.status_code == 400
    assert sentence in errors_at("name", answer)
    assert Queue.objects.filter(policy=example.dev).count() == 1


def test_a_profile_above_the_limit_is_shown_with_the_reason_and_cannot_be_chosen(
    example: Example, root: User, client_for: ClientFor
) -> None:
    changes = {"limit": {"gpu": 4}, "reserved": {"gpu": 4}}
    policy_change(actor=root, policy=example.dev, changes=changes)
    path = reverse("policy_connect", args=[example.dev.pk])
    eight = Profile.objects.get(name="8xGPU")

    html = client_for(root).get(path).content.decode()
    refused = client_for(root).post(path, {"profile": str(eight.pk), "name": "dev-8xgpu"})

    option = re.search(rf'<option value="{eight.pk}"([^>]*)>([^<]*)<', html)
    assert option is not None
    assert "disabled" in option[1]
    assert "8xGPU takes 8 GPU, more than the limit of 4 of policy Dev" in option[2]
    assert refused.status_code == 400
    assert not Queue.objects.filter(name="dev-8xgpu").exists()
