"""REST of access rules: one rule with many subjects, If-Match, who may, and errors."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.access.selectors import (
    policies_visible_to,
    pools_visible_to,
    queues_managed_by,
    queues_open_to,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.accounts.services.people import user_create
from apps.accounts.services.service_accounts import service_account_create, service_account_remove
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_remove
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import profile_disconnect
from apps.configuration.services.rules import RuleSubjects, rule_change, rule_grant
from apps.policies.document import parse
from apps.policies.models import (
    PolicyGroupPermission,
    PolicyMember,
    PolicyUserPermission,
    PoolUserPermission,
    QueueUserPermission,
)
from apps.vaults.models import VaultUserPermission
from tests.people import Example

pytestmark = pytest.mark.django_db
# Whatever stands there now.
ANY = {"If-Match": "*"}
RULES = "/api/v1/access-rules/"
EXPLAIN = "/api/v1/access/explain/"
As = Callable[[User], APIClient]


@pytest.fixture
def admin(api_as: As, root: User) -> APIClient:
    return api_as(root)


def body(
    kind: str, object_id: object, level: str, *users: str, **more: object
) -> dict[str, object]:
    found = str(object_id) if object_id is not None else None
    return {"kind": kind, "object": found, "level": level, "users": list(users), **more}


def test_a_permission_on_a_policy_reaches_its_queues_and_nothing_else(
    admin: APIClient, example: Example, charlie: User, research_group: Group
) -> None:
    made = admin.post(RULES, body("policy", example.dev.pk, "modify", groups=["research"]))

    assert made.status_code == 201
    assert made.json()["id"] == f"policy.{example.dev.pk}.modify.person"
    assert made.json()["made_by"] == ["root"]
    assert example.dev_queue in queues_open_to(charlie)
    assert example.dev in policies_visible_to(charlie)
    assert not queues_managed_by(charlie).exists()


def test_a_rule_on_a_kind_is_about_every_object(
    admin: APIClient, example: Example, charlie: User
) -> None:
    admin.post(RULES, body("queue", None, "manage", "charlie"))
    admin.post(RULES, body("pool", None, "read", "charlie"))

    assert queues_managed_by(charlie).count() == 2
    assert pools_visible_to(charlie).count() == 2
    assert policies_visible_to(charlie).get() == example.research
    assert admin.delete(f"{RULES}queue.all.manage.person/").status_code == 204
    assert not queues_managed_by(User.objects.get(pk=charlie.pk)).exists()
    assert [row["id"] for row in admin.get(f"{RULES}?object=all").json()["results"]] == [
        "pool.all.read.person"
    ]


def test_the_highest_level_is_read_and_a_rule_is_changed_as_one(
    admin: APIClient, example: Example, bob: User, charlie: User
) -> None:
    made = admin.post(RULES, body("queue", example.dev_queue.pk, "manage", "charlie", "bob"))
    address = f"{RULES}{made.json()['id']}/"
    tag = admin.get(address).headers["ETag"]

    missing = admin.patch(address, {"users": ["bob"]})
    lowered = admin.patch(
        address, {"level": "read", "users": ["bob"], "groups": ["dev"]}, headers={"If-Match": tag}
    )
    late = admin.patch(
        f"{RULES}queue.{example.dev_queue.pk}.read.person/",
        {"users": ["charlie"]},
        headers={"If-Match": tag},
    )

    assert (missing.status_code, list(missing.json()["fields"])) == (400, ["If-Match"])
    assert [one["name"] for one in lowered.json()["subjects"]] == ["dev", "bob"]
    assert late.status_code == 412
    assert admin.get(address).status_code == 404
    assert not queues_managed_by(bob).exists()
    assert not queues_visible_to(charlie).filter(pk=example.dev_queue.pk).exists()


def test_making_it_twice_is_making_it_once(admin: APIClient, example: Example, bob: User) -> None:
    first = admin.post(RULES, body("policy", example.dev.pk, "read", "bob")).json()
    again = admin.post(RULES, body("policy", example.dev.pk, "read", "bob")).json()

    assert first == again
    assert PolicyUserPermission.objects.count() == 1


def test_exceeding_a_limit_is_a_level_of_its_own(
    admin: APIClient, example: Example, bob: User
) -> None:
    admin.post(RULES, body("policy", example.dev.pk, "exceed", "bob"))
    admin.post(RULES, body("policy", example.dev.pk, "manage", "bob"))

    assert admin.get(f"/api/v1/policies/{example.dev.pk}/exceeders/").json()["users"] == ["bob"]
    levels = [row["level"] for row in admin.get(f"{RULES}?user=bob").json()["results"]]
    assert levels == ["exceed", "manage"]
    admin.delete(f"{RULES}policy.{example.dev.pk}.exceed.person/")
    assert admin.get(f"/api/v1/policies/{example.dev.pk}/exceeders/").json()["users"] == []
    assert queues_managed_by(bob).exists()


@pytest.mark.parametrize(
    ("given", "status", "field"),
    [
        pytest.param(body("node", 1, "read", "bob"), 400, "kind", id="an unknown kind"),
        pytest.param(body("policy", 999, "read", "bob"), 404, "object", id="no such object"),
        pytest.param(body("policy", "x", "read", "bob"), 404, "object", id="no id"),
        pytest.param(body("vault", None, "read", "bob"), 404, "object", id="no kind of vaults"),
        pytest.param(body("policy", None, "exceed", "bob"), 400, "level", id="exceeding all"),
        pytest.param(body("policy", None, "own", "bob"), 400, "level", id="an unknown level"),
        pytest.param(body("policy", None, "read", "zoe"), 400, "users", id="nobody's name"),
        pytest.param(body("policy", None, "read"), 400, "subjects", id="nobody"),
        pytest.param(body("policy", None, "read", groups=["x"]), 400, "groups", id="no group"),
        pytest.param(body("policy", None, "read", user="bob"), 400, "user", id="no such field"),
        pytest.param(body("policy", None, "read", "a\0"), 400, "users.0", id="a zero byte"),
    ],
)
def test_bad_input_names_its_field(
    admin: APIClient, example: Example, bob: User, given: object, status: int, field: str
) -> None:
    answer = admin.post(RULES, given)

    assert (answer.status_code, list(answer.json()["fields"])) == (status, [field])


def test_who_manages_nothing_sees_no_rule(
    api_as: As, admin: APIClient, example: Example, alice: User, charlie: User
) -> None:
    admin.post(RULES, body("policy", example.dev.pk, "read", "charlie"))
    key = f"policy.{example.dev.pk}.read.person"
    for user in (alice, charlie):
        client = api_as(user)
        assert client.get(RULES).json()["results"] == []
        assert client.get(f"{RULES}{key}/").status_code == 404
        assert client.delete(f"{RULES}{key}/").status_code == 404
        assert (
            client.post(RULES, body("policy", example.dev.pk, "read", "alice")).status_code == 404
        )


def test_nobody_grants_what_they_do_not_hold(
    api_as: As, admin: APIClient, example: Example, alice: User, bob: User, charlie: User
) -> None:
    admin.post(RULES, body("queue", example.dev_queue.pk, "manage", "alice"))
    client = api_as(alice)
    queue = example.dev_queue.pk

    own = client.post(RULES, body("queue", queue, "manage", "bob"))
    outsider = client.post(RULES, body("queue", queue, "read", "charlie"))
    nobody = client.post(RULES, body("queue", queue, "read", "zoe"))
    policy = client.post(RULES, body("policy", example.dev.pk, "read", "bob"))
    kind = client.post(RULES, body("queue", None, "read", "bob"))
    restricted = client.put(
        f"/api/v1/policies/{example.dev.pk}/restriction/",
        {"is_restricted": True, "people": ["bob"]},
        headers=ANY,
    )

    assert own.status_code == 201
    # A user whom the actor may not name is answered like an unknown one.
    assert (
        outsider.json()["fields"]["users"].replace("charlie", "zoe")
        == (nobody.json()["fields"]["users"])
    )
    assert (policy.status_code, kind.status_code, restricted.status_code) == (404, 404, 403)
    visible = {
        row["target"] if "target" in row else row["id"]
        for row in client.get(RULES).json()["results"]
    }
    assert visible == {f"queue.{queue}.manage.person"}


def test_nobody_raises_whom_they_may_not_name(
    api_as: As, admin: APIClient, example: Example, alice: User, bob: User, charlie: User
) -> None:
    pk = example.dev.pk
    admin.post(RULES, body("policy", pk, "manage", "alice"))
    admin.post(RULES, body("policy", pk, "modify", "charlie", "bob"))
    address = f"{RULES}policy.{pk}.modify.person/"
    client = api_as(alice)
    tag = {"If-Match": client.get(address).headers["ETag"]}

    refused = client.patch(address, {"level": "manage"}, headers=tag)
    lowered = client.patch(address, {"level": "read"}, headers=tag)
    back = {"If-Match": lowered.headers["ETag"]}
    address = address.replace("modify", "read")
    raised = client.patch(address, {"level": "modify", "users": ["bob"]}, headers=back)

    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["subjects"])
    assert not queues_managed_by(charlie).exists()
    assert (lowered.status_code, raised.status_code) == (200, 200)


def test_a_rule_with_many_names_is_not_compared_name_by_name(
    root: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = User.objects.bulk_create(User(username=f"many-{n}") for n in range(400))
    subjects = RuleSubjects(users=tuple(people))
    target = Target(RuleKind.POLICY, str(example.dev.pk), example.dev.name)
    rule_grant(actor=root, target=target, level=Level.READ, subjects=subjects)
    compared: list[int] = []

    def equal(self: User, other: object) -> bool:
        compared.append(1)
        return isinstance(other, User) and self.pk == other.pk

    monkeypatch.setattr(User, "__eq__", equal)
    rule_change(actor=root, target=target, level=Level.READ, subjects=subjects)

    assert len(compared) < 10 * len(people)


def test_what_its_policy_makes_is_restricted_and_not_removed(
    api_as: As, admin: APIClient, example: Example, alice: User, bob: User
) -> None:
    key = f"{RULES}policy.{example.dev.pk}.modify.policy/"
    restriction = f"/api/v1/policies/{example.dev.pk}/restriction/"

    assert admin.delete(key).status_code == 409
    blind = admin.put(restriction, {"is_restricted": True, "people": ["bob"]})
    strange = admin.put(restriction, {"is_restricted": True, "people": ["root"]}, headers=ANY)
    done = admin.put(restriction, {"is_restricted": True, "people": ["bob"]}, headers=ANY)

    assert (blind.status_code, list(blind.json()["fields"])) == (400, ["If-Match"])
    assert (strange.status_code, list(strange.json()["fields"])) == (400, ["people"])
    want = {"is_restricted": True, "people": ["bob"], "others": 0, "tasks_returned": 0}
    assert done.json() == want
    assert admin.get(key).json()["is_restricted"] is True
    assert api_as(alice).get(f"/api/v1/queues/{example.dev_queue.name}/").status_code == 404
    assert api_as(bob).get(f"/api/v1/queues/{example.dev_queue.name}/").status_code == 200
    read = {"If-Match": admin.get(restriction).headers["ETag"]}
    admin.put(restriction, {"is_restricted": True, "people": ["alice"]}, headers=read)
    late = admin.put(restriction, {"is_restricted": True, "people": ["bob"]}, headers=read)
    assert late.status_code == 412
    assert admin.get(restriction).json()["people"] == ["alice"]
    now = {"If-Match": admin.get(restriction).headers["ETag"]}
    assert admin.put(restriction, {"is_restricted": False}, headers=now).status_code == 200
    assert api_as(alice).get(f"/api/v1/queues/{example.dev_queue.name}/").status_code == 200


def test_the_list_goes_on_page_by_page(admin: APIClient, example: Example, bob: User) -> None:
    admin.post(RULES, body("policy", None, "read", "bob"))
    found, address = [], f"{RULES}?limit=1"
    while address:
        page = admin.get(address).json()
        found += [row["id"] for row in page["results"]]
        address = page["next"]

    want = ["policy.all.read.person"]
    want += [f"policy.{one.pk}.modify.policy" for one in (example.dev, example.research)]
    assert found == want
    for wrong in ("x", "bnVsbA==", "W10=", "é"):
        answer = admin.get(f"{RULES}?cursor={wrong}")
        assert (answer.status_code, list(answer.json()["fields"])) == (400, ["cursor"]), wrong


def test_it_explains_what_somebody_may_do_and_why(
    api_as: As, admin: APIClient, example: Example, alice: User, bob: User, charlie: User
) -> None:
    admin.post(RULES, body("policy", None, "read", groups=["research"]))
    about = f"object=queue.{example.dev_queue.pk}"

    answer = admin.get(f"{EXPLAIN}?user=charlie&{about}").json()
    own = api_as(alice).get(f"{EXPLAIN}?{about}").json()
    other = api_as(alice).get(f"{EXPLAIN}?user=bob&{about}")
    unknown = api_as(alice).get(f"{EXPLAIN}?user=charlie&{about}")
    nobody = api_as(alice).get(f"{EXPLAIN}?user=zoe&{about}")
    unseen = api_as(alice).get(f"{EXPLAIN}?object=policy.{example.research.pk}")
    bad = admin.get(f"{EXPLAIN}?object=planet.1")

    held = {one["permission"]: one["is_held"] for one in answer["permissions"]}
    assert held == {"see": True, "enqueue": False, "manage": False}
    assert (
        answer["permissions"][0]["reasons"][0]["text"]
        == "A rule on every policy for group research."
    )
    assert own["permissions"][1]["reasons"][0]["code"] == "policy_group"
    assert (other.status_code, unseen.status_code) == (404, 404)
    assert (unknown.status_code, unknown.json()["fields"]) == (400, nobody.json()["fields"])
    assert (bad.status_code, list(bad.json()["fields"])) == (400, ["object"])


@pytest.mark.parametrize("thing", ["policy", "queue", "pool", "vault"])
def test_no_rule_outlives_its_object(
    admin: APIClient, root: User, example: Example, bob: User, thing: str
) -> None:
    vault = admin.post(
        "/api/v1/vaults/", {"name": "shared", "group": "dev", "text": "a = 1", "format": "hocon"}
    ).json()["id"]
    objects = {
        "policy": example.dev.pk,
        "queue": example.dev_queue.pk,
        "pool": example.bare_metal.pk,
        "vault": vault,
    }
    for kind, pk in objects.items():
        assert admin.post(RULES, body(kind, pk, "read", "bob")).status_code == 201, kind
    admin.put(
        f"/api/v1/policies/{example.dev.pk}/restriction/",
        {"is_restricted": True, "people": ["bob"]},
        headers=ANY,
    )
    rows = {
        "policy": PolicyUserPermission.objects.filter(content_object=example.dev),
        "queue": QueueUserPermission.objects.all(),
        "pool": PoolUserPermission.objects.all(),
        "vault": VaultUserPermission.objects.all(),
    }
    assert rows[thing].exists()

    if thing == "policy":
        policy_remove(actor=root, policy=example.dev)
        assert not PolicyGroupPermission.objects.filter(content_object=example.dev).exists()
        assert not PolicyMember.objects.exists()
    elif thing == "queue":
        profile_disconnect(actor=root, queue=example.dev_queue)
    elif thing == "pool":
        kept = {"name": "H100 Half a Superpod", "capacity": 8}
        draft_write(document=parse({"pools": [kept]}), actor=root)
        document_provision(actor=root)
    else:
        admin.delete(f"/api/v1/vaults/{vault}/")

    assert not rows[thing].exists()
    shown = admin.get(f"{RULES}?kind={thing}&user=bob").json()["results"]
    assert shown == []


def test_a_service_account_that_goes_is_named_by_no_rule(
    admin: APIClient, root: User, example: Example
) -> None:
    account = service_account_create(actor=root, name="ci", groups=["dev"]).account
    admin.post(RULES, body("queue", None, "read", "ci"))
    admin.post(RULES, body("policy", example.dev.pk, "manage", "ci"))
    vault = {"name": "shared", "group": "dev", "text": "a = 1", "format": "hocon"}
    shared = admin.post("/api/v1/vaults/", vault).json()["id"]
    assert admin.post(RULES, body("vault", shared, "modify", "ci")).status_code == 201
    admin.put(
        f"/api/v1/policies/{example.dev.pk}/restriction/",
        {"is_restricted": True, "people": ["ci"]},
        headers=ANY,
    )

    service_account_remove(actor=root, account=account)

    assert not PolicyUserPermission.objects.exists()
    assert not VaultUserPermission.objects.exists()
    assert not PolicyMember.objects.exists()
    assert not account.user_permissions.exists()


def test_a_restricted_policy_names_members_who_rejoin_its_group(
    admin: APIClient, example: Example, dev_group: Group, alice: User
) -> None:
    admin.put(
        f"/api/v1/policies/{example.dev.pk}/restriction/",
        {"is_restricted": True, "people": ["alice"]},
        headers=ANY,
    )

    alice.groups.remove(dev_group)
    assert not queues_visible_to(alice).exists()
    late = user_create(username="late", password=None, groups=["dev"])
    alice.groups.add(dev_group)

    assert queues_visible_to(alice).get() == example.dev_queue
    assert not queues_visible_to(late).exists()
