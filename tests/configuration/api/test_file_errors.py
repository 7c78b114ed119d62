"""Configuration files that are refused, and who may send them."""

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import ADMINS, Scope, User
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.models import Revision
from apps.configuration.selectors import live_document
from apps.policies.document import as_data
from tests.accounts.test_throttling import basic
from tests.configuration.api.common import SignIn
from tests.configuration.api.configuration_files import FILE, WHOLE, send
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        pytest.param("pools:\n  - name: H100\n    capacty: 4\n", "pools[0].capacty", 3, id="typo"),
        pytest.param(
            "pools:\n  - name: New\n    capacity:\n      gpu: many\n",
            "pools[0].capacity.gpu",
            4,
            id="amount",
        ),
        pytest.param("profiles:\n  - name: Lone\n", "profiles[0].pools", 2, id="no pool"),
        pytest.param("polices: []\n", "polices", 1, id="unknown kind"),
        pytest.param(
            "policies:\n  - name: Dev\n    group: nobody\n", "policies[0].group", 3, id="no group"
        ),
        pytest.param(
            "policies:\n  - name: Dev\n  - name: Research\n    reserved: {gpu: 99}\n",
            "policies[1].reserved.gpu",
            4,
            id="above the limit",
        ),
        pytest.param(
            "policies:\n- name: Dev\n  queues:\n  - profile: 4xGPU\n    grace_s: -1\n",
            "policies[0].queues[0].grace_s",
            5,
            id="setting of a queue",
        ),
        pytest.param(
            "policies:\n- name: Dev\n  queues:\n  - profile: 5xGPU\n",
            "policies[0].queues[0].profile",
            4,
            id="no profile",
        ),
        pytest.param(
            "rules:\n- {kind: policy, name: Dev, level: read}\n", "rules[0].users", 2, id="no users"
        ),
        pytest.param(
            "rules:\n- {kind: task, name: Dev, level: read}\n", "rules[0].kind", 2, id="bad kind"
        ),
        pytest.param('groups:\n- name: " "\n', "groups[0].name", 2, id="no name"),
        pytest.param("queuing_order: [Nobody]\n", "queuing_order[0]", 1, id="no policy"),
        pytest.param(
            "policies:\n  - name: Dev\n    id: 4711\n", "policies[0].id", 3, id="another's id"
        ),
    ],
)
def test_an_error_names_the_place_in_the_file(
    admin: APIClient, example: Example, text: str, place: str, line: int
) -> None:
    before = as_data(live_document())

    answer = send(admin, "apply", text)

    assert answer.status_code in {400, 409}, answer.json()
    assert list(answer.json()["fields"]) == [place]
    assert answer.json()["fields"][place].endswith(f" (line {line})")
    assert ". (line" not in answer.json()["detail"]
    assert f"line {line}" in answer.json()["detail"]
    assert as_data(live_document()) == before


def test_a_failure_in_the_last_step_leaves_nothing(admin: APIClient, example: Example) -> None:
    before = as_data(live_document()), Revision.objects.count(), Group.objects.count()

    answer = send(admin, "apply", WHOLE.replace("alice", "nobody"))

    assert answer.status_code == 400
    assert (as_data(live_document()), Revision.objects.count(), Group.objects.count()) == before


def test_a_file_without_yaml_or_of_other_things_is_refused(
    admin: APIClient, example: Example
) -> None:
    for text in ("a: [", "- 1", "pools: 4", "pools: [4]", "policies: [{name: Dev, queues: 3}]"):
        assert send(admin, "apply", text).status_code == 400, text


def test_a_service_account_applies_with_the_scope_to_administer(
    example: Example, root: User
) -> None:
    made = service_account_create(
        actor=root, name="pipeline", groups=[ADMINS], scope=Scope.ADMINISTER
    )
    reader = service_account_create(actor=root, name="reader", groups=[ADMINS], scope=Scope.READ)
    answers = []

    for one in (made, reader):
        client = APIClient(headers=basic(one.credential.key, one.secret))
        answers.append(send(client, "apply", "settings: {queueing: strict}"))

    assert [answer.status_code for answer in answers] == [200, 403]
    assert Revision.objects.latest("number").author == made.account


def test_what_the_whole_would_break_is_said_once(admin: APIClient, example: Example) -> None:
    """Said by the check of the whole configuration, which does not know the file."""
    answer = send(admin, "apply", "profiles:\n- name: Lone\n").json()

    problem = "profiles[0].pools Profile 'Lone' is linked to no pool: link one (line 2)"
    assert answer["detail"] == f"The configuration has errors. {problem}."


def test_others_get_nothing(api_as: SignIn, example: Example, alice: User, quinn: User) -> None:
    for user in (alice, quinn):
        client = api_as(user)
        assert send(client, "apply", WHOLE).status_code == 403
        assert send(client, "diff", WHOLE).status_code == 403
        assert client.get(f"{FILE}/export/").status_code == 403
