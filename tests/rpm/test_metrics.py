"""`/metrics`, and the dashboard and alert rules that read it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.allocation.models import PassState
from apps.allocation.services import run_pass
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.core import clock
from apps.nodes.models import Node, NodeState
from apps.policies.models import Policy, PolicySpending, Pool, Queue
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.gpu_use import DeviceSample, device_samples_record
from apps.usage.models import UsageRun
from rpm import metrics
from tests.allocation.state import begin, end, enqueue, latest, make_node, make_server
from tests.people import Example
from tests.services import ports
from tests.services.requirements import need

DOCKER = Path(__file__).resolve().parents[2] / "docker"
TOKEN = "kV9-2xQ_pL7sTz4uRw8yBn3mHc6jFd1gXa5e"
ODD = 'a "quoted\\name"\nrpm_database_up 7\r{}é,=#'
ASK = """
import django
django.setup()
from django.conf import settings
from django.test import Client
headers = {"Host": "localhost", "Authorization": f"Bearer {settings.RPM_METRICS_TOKEN}"}
answer = Client().get("/metrics", headers=headers)
print(answer.status_code)
print(answer.content.decode(), end="")
"""
NAME = re.compile(r"\brpm_[a-z_]+")
Samples = dict[tuple[str, str], float]


@pytest.fixture(autouse=True)
def token(settings: Settings) -> None:
    settings.RPM_METRICS_TOKEN = TOKEN


@pytest.fixture
def busy(example: Example, alice: User, charlie: User) -> list[Task]:
    """Two nodes; Dev runs two tasks and waits with one, Research's task could not be launched."""
    make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1", last_seen_at=timezone.now() - timedelta(minutes=10))
    make_server()
    first = [*enqueue(alice, example.dev_queue, 3), *enqueue(charlie, example.research_queue, 1)]
    run_pass()
    run_pass()
    begin(*(latest(task) for task in first[:2]))
    end(latest(first[2]), code=None, is_stop_asked=False)
    return enqueue(alice, example.dev_queue, 2)


def scrape() -> str:
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    return answer.content.decode()


def samples() -> Samples:
    """Every value by its name and its labels, such as `dev-4xgpu` or `Dev gpu`."""
    found: Samples = {}
    for family in text_string_to_metric_families(scrape()):
        for one in family.samples:
            key = (one.name, " ".join(one.labels.values()))
            assert key not in found
            found[key] = one.value
    return found


def test_the_worked_example_has_its_numbers(example: Example, busy: list[Task]) -> None:
    oldest = timezone.now() - timedelta(hours=2)
    Task.objects.filter(pk=busy[0].pk).update(submitted_at=oldest)

    found = samples()

    want = {
        ("rpm_database_up", ""): 1,
        ("rpm_queue_waiting_tasks", example.dev_queue.name): 2,
        ("rpm_queue_waiting_tasks", example.research_queue.name): 0,
        ("rpm_queue_oldest_wait_seconds", example.research_queue.name): 0,
        ("rpm_policy_used", "Dev gpu"): 8,
        ("rpm_policy_used", "Research gpu"): 4,
        ("rpm_policy_reserved", "Dev gpu"): 8,
        ("rpm_policy_limit", "Dev gpu"): 16,
        ("rpm_pool_capacity", f"{example.h100.name} gpu"): 8,
        ("rpm_nodes", "healthy"): 2,
        ("rpm_nodes", "suspect"): 0,
        ("rpm_node_servers", ""): 1,
        ("rpm_attempts", "running"): 2,
        ("rpm_attempts", "allocated"): 1,
        ("rpm_launches_last_hour", "started"): 2,
        ("rpm_launches_last_hour", "failed"): 1,
        ("rpm_launches_last_hour", "waiting"): 1,
        ("rpm_pass_decisions_last_hour", "placed"): 4,
        ("rpm_pass_decisions_last_hour", "preempted"): 0,
    }
    assert {key: found.get(key) for key in want} == want
    assert found["rpm_queue_oldest_wait_seconds", example.dev_queue.name] == pytest.approx(7200, 10)
    assert found["rpm_node_last_heard_seconds", "b1"] == pytest.approx(600, 10)
    used = sum(value for (name, _), value in found.items() if name == "rpm_pool_used")
    free = sum(value for (name, _), value in found.items() if name == "rpm_pool_free_gpus")
    assert (used, free) == (12, 4)
    passes = found["rpm_passes_total", "decided"] + found["rpm_passes_total", "idle"]
    assert passes == PassState.objects.get(id=1).passes
    assert 0 <= found["rpm_pass_age_seconds", ""] < 60
    assert 0 <= found["rpm_launch_mean_seconds", ""] <= found["rpm_launch_max_seconds", ""] < 60


def test_a_policy_counts_what_policies_below_it_hold(
    example: Example, busy: list[Task], root: User
) -> None:
    top = policy_create(actor=root, name="All", group=example.dev.group)
    Policy.objects.filter(pk__in=[example.dev.pk, example.research.pk]).update(parent=top)

    found = samples()

    assert found["rpm_policy_used", "All gpu"] == 12
    assert found["rpm_policy_reserved", "All gpu"] == 16
    assert ("rpm_policy_limit", "All gpu") not in found


def test_a_failed_pass_shows_until_the_next_one(example: Example) -> None:
    run_pass()
    assert ("rpm_pass_failure_age_seconds", "") not in samples()

    PassState.objects.update(failed_at=timezone.now(), last_at=timezone.now() - timedelta(hours=1))

    found = samples()
    assert found["rpm_pass_failure_age_seconds", ""] < found["rpm_pass_age_seconds", ""]


def test_before_the_first_pass_its_age_is_absent(db: None) -> None:
    assert ("rpm_pass_age_seconds", "") not in samples()


def test_a_node_declared_switched_off_is_not_silent(example: Example, busy: list[Task]) -> None:
    Node.objects.filter(name="b1").update(off_at=timezone.now(), state=NodeState.SUSPECT)

    found = samples()

    assert (found["rpm_nodes", "off"], found["rpm_nodes", "suspect"]) == (1, 0)
    assert ("rpm_node_last_heard_seconds", "b1") not in found


def test_the_number_of_queries_does_not_follow_the_number_of_queues(
    example: Example, busy: list[Task], root: User
) -> None:
    with CaptureQueriesContext(connection) as before:
        scrape()
    for number in range(20):
        policy = Policy.objects.create(name=f"P{number}", group=example.dev.group)
        pool = Pool.objects.create(name=f"pool {number}", capacity={"gpu": "1"})
        make_node(pool, name=f"node{number}", gpus=1)
        Queue.objects.create(
            name=f"q{number}", policy=policy, profile=example.profile, queuing_rank=number + 5
        )

    with CaptureQueriesContext(connection) as after:
        scrape()

    assert len(after) == len(before) <= 20


def _sampled(*, percent: int) -> None:
    """All held GPUs have had this utilisation for an hour."""
    now = clock.now()
    Attempt.objects.update(started_at=now - timedelta(hours=2))
    Member.objects.filter(ended_at=None).update(started_at=now - timedelta(hours=2))
    for node in Node.objects.all():
        uses = [DeviceSample(one.uuid, 1, percent, None) for one in node.devices.all()]
        for minute in range(60, -1, -1):
            device_samples_record(node, uses, {}, now=now - timedelta(minutes=minute))


def test_idle_gpus_and_their_use_are_shown_where_they_are_known(
    example: Example, busy: list[Task], root: User
) -> None:
    top = policy_create(actor=root, name="All", group=example.dev.group)
    Policy.objects.filter(pk=example.dev.pk).update(parent=top)
    found = samples()
    assert found["rpm_policy_idle_gpus", "All"] == 0
    assert not [key for key in found if key[0] == "rpm_pool_gpu_use_ratio"]

    _sampled(percent=2)

    found = samples()
    assert found["rpm_policy_idle_gpus", "All"] == found["rpm_policy_idle_gpus", "Dev"] == 8
    assert found["rpm_policy_idle_gpus", "Research"] == 4
    assert found["rpm_pool_gpu_use_ratio", example.h100.name] == 0.02


def test_budgets_are_shown_where_there_are_any(example: Example, root: User) -> None:
    assert not [key for key in samples() if key[0] == "rpm_policy_budget_spent_ratio"]
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(200)})
    PolicySpending.objects.create(
        policy=example.dev, at=timezone.now(), spent=170_000_000, noticed_budget=200
    )

    found = {key: value for key, value in samples().items() if "budget" in key[0]}

    assert found == {("rpm_policy_budget_spent_ratio", "Dev"): 0.85}


def test_nothing_that_was_removed_keeps_its_name(
    example: Example, busy: list[Task], root: User
) -> None:
    assert example.dev_queue.name in scrape()

    policy_remove(actor=root, policy=example.dev)
    Node.objects.filter(name="b1").update(removed_at=timezone.now())
    Pool.objects.filter(pk=example.bare_metal.pk).update(removed_at=timezone.now())

    text = scrape()
    for name in ("Dev", example.dev_queue.name, "b1", example.bare_metal.name):
        assert f'"{name}"' not in text
    assert f'"{example.h100.name}"' in text


def test_odd_names_are_escaped(example: Example) -> None:
    Policy.objects.filter(pk=example.dev.pk).update(name=ODD)

    found = samples()

    assert found["rpm_policy_reserved", f"{ODD} gpu"] == 8
    assert found["rpm_database_up", ""] == 1


def test_beyond_the_bound_names_share_one_series(
    example: Example, busy: list[Task], root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_NAMES", 1)
    # A name of its own, which must not make a second series with the same labels.
    Node.objects.filter(name="h1").update(name="other")

    found = samples()

    assert {labels for name, labels in found if name == "rpm_policy_used"} == {
        "Dev gpu",
        "other gpu",
    }
    assert found["rpm_policy_used", "other gpu"] == 4
    assert found["rpm_node_last_heard_seconds", "other"] == pytest.approx(600, 10)


def test_further_resource_keys_are_left_out(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {f"key{number}": "1" for number in range(30)}
    Pool.objects.filter(pk=example.h100.pk).update(capacity={"gpu": "8", **keys})

    shown = {labels for name, labels in samples() if name == "rpm_pool_capacity"}

    assert f"{example.h100.name} gpu" in shown
    assert len(shown) < metrics.MOST_KEYS


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param(f"Bearer {TOKEN}", 200, id="the token"),
        pytest.param(f"bearer  {TOKEN} ", 200, id="its scheme in small letters"),
        pytest.param(f"Bearer {TOKEN[:-1]}", 401, id="one character less"),
        pytest.param("Bearer ", 401, id="an empty one"),
        pytest.param(f"Basic {TOKEN}", 401, id="another scheme"),
        pytest.param("Bearer \xe9", 401, id="a character beyond ASCII"),
        pytest.param("", 401, id="none"),
    ],
)
def test_only_the_token_opens_it(db: None, header: str, status: int) -> None:
    answer = Client().get("/metrics", headers={"Authorization": header})

    assert answer.status_code == status
    assert (b"rpm_" in answer.content) == (status == 200)
    assert ("WWW-Authenticate" in answer) == (status == 401)
    assert answer["Cache-Control"] == "private, no-store"


def test_no_session_opens_it(client: Client, root: User) -> None:
    client.force_login(root)

    assert client.get("/metrics").status_code == 401
    assert client.post("/metrics").status_code == 405


@pytest.mark.parametrize("header", ["", "Bearer ", f"Bearer {TOKEN}"])
def test_without_a_token_in_the_settings_there_is_no_such_address(
    client: Client, root: User, settings: Settings, header: str
) -> None:
    settings.RPM_METRICS_TOKEN = ""
    client.force_login(root)

    assert client.get("/metrics", headers={"Authorization": header}).status_code == 404


def test_without_a_database_only_that_is_shown(tmp_path: Path) -> None:
    nobody = f"postgresql://someone:hidden@127.0.0.1:{ports.free_port()}/books"
    variables = {"RPM_HOME": str(tmp_path), "DATABASE_URL": nobody, "RPM_METRICS_TOKEN": TOKEN}

    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=DOCKER.parent,
        env=os.environ | variables | {"DJANGO_SETTINGS_MODULE": "rpm.settings"},
        check=True,
        capture_output=True,
        text=True,
    )

    values = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert values == ["200", "rpm_database_up 0.0"]


# --- what reads them -----------------------------------------------------------------------------


def alert_rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DOCKER / "prometheus-alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard_queries() -> Iterator[str]:
    text = (DOCKER / "grafana-dashboard.json").read_text(encoding="utf-8")
    for panel in json.loads(text)["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_alerts_dashboard_and_document_name_metrics_that_exist(busy: list[Task]) -> None:
    PassState.objects.update(failed_at=timezone.now())
    Policy.objects.update(budget=1)
    _sampled(percent=50)
    # That of the migration is gone after a test that commits.
    UsageRun.objects.update_or_create(id=1, defaults={"at": clock.now()})
    existing = {name for name, _ in samples()}
    if connection.vendor != "postgresql":
        existing |= {"rpm_database_connections", "rpm_database_connections_max"}

    for expression in [*(rule["expr"] for rule in alert_rules()), *dashboard_queries()]:
        assert NAME.findall(expression)
        assert set(NAME.findall(expression)) <= existing, expression

    page = (DOCKER.parent / "docs" / "operating.md").read_text(encoding="utf-8")
    assert {name for name in NAME.findall(page) if f"`{name}" in page} == existing


def test_every_alert_says_what_to_do() -> None:
    for rule in alert_rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_prometheus_accepts_the_alerts_and_the_metrics(example: Example, busy: list[Task]) -> None:
    promtool = need("promtool")
    Policy.objects.filter(pk=example.dev.pk).update(name=ODD)
    rules = [promtool, "check", "rules", str(DOCKER / "prometheus-alerts.yml")]

    checked = subprocess.run(rules, check=False, capture_output=True, text=True)
    linted = subprocess.run(
        [promtool, "check", "metrics"], check=False, capture_output=True, text=True, input=scrape()
    )

    assert checked.returncode == 0, checked.stderr
    assert linted.returncode == 0, linted.stderr + linted.stdout
