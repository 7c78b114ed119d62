"""Sixty scripts as names, texts and output: every page shows them, and none of them runs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.demonstration import demonstration, sign_in
from tests.browser.pages import PATHS, details
from tests.browser.payloads import FOR_LOGS, PAYLOADS
from tests.end_to_end.installation import Installation
from tests.services.requirements import need

# As people fill them in: by the services, which REST and the pages call.
FILL = """
import json, sys
from django.contrib.auth.models import Group
from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.groups import group_save
from apps.configuration.services.policies import policy_change
from apps.configuration.services.pools import pool_pause
from apps.configuration.services.provision import document_provision
from apps.configuration.services.queues import queue_pause
from apps.events.services import event_record
from apps.nodes.models import Node
from apps.nodes.services import node_pause
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.task_spec import TaskSpec
from apps.tasks.services.enqueue.submission import task_create, task_submit

payloads, logs = json.load(sys.stdin)
text = "\\n".join(payloads)
root, dev = User.objects.get(username="demo-admin"), User.objects.get(username="demo-dev")
script = "cat <<'END'\\n" + "\\n".join(logs) + "\\nEND\\nsleep 600"
task_submit(actor=dev, spec=TaskSpec(
    name=payloads[0], queue="dev-2xgpu", command=["sh", "-c", script], priority=0))
for payload in payloads:
    task_create(actor=root, spec=TaskSpec(
        name=payload[:100], command=["echo", payload], environment={"TEXT": payload}))
    credential_create(user=root, label=payload[:100])
    event_record("x.changed", actor=root, object_type="x", object_id=payload[:64], data={
        "name": payload, "reason": payload, "before": {payload: payload}, "after": {payload: text}})
User.objects.filter(pk=root.pk).update(first_name=payloads[0], last_name=payloads[5])
group_save(actor=root, group=Group(name=payloads[8]), description=text[:900], members=[root, dev])
policy = Policy.objects.filter(removed_at=None).order_by("pk").first()
policy_change(actor=root, policy=policy, changes={"name": payloads[9], "description": text[:900]})
document_provision(actor=root, note=text[:900])
for number, queue in enumerate(Queue.objects.filter(removed_at=None)):
    queue_pause(actor=root, queue=queue, reason=text[number * 100:][:400])
pool_pause(actor=root, pool=Pool.objects.filter(removed_at=None).first(), reason=text[:400])
node_pause(actor=root, node=Node.objects.filter(removed_at=None).first(), reason=text[:400])
"""
# What came later than these; prints the addresses of what is made.
FILL_SETTINGS = """
import json, sys
from django.contrib.auth.models import Group
from django.urls import reverse
from apps.accounts.models import User
from apps.accounts.services.identity import mapping_set, provider_create
from apps.accounts.services.service_accounts import service_account_create
from apps.policies.services import registry_credential_save
from apps.tasks.models import Task
from apps.access.services.vaults import vault_change
from apps.vaults.services.vaults import vault_create

payloads = json.load(sys.stdin)
root, dev = User.objects.get(username="demo-admin"), Group.objects.get(name="demo-dev")
paths = []
for number in range(0, 60, 6):
    six = payloads[number:number + 6]
    data = {one: {other: six} for one, other in zip(six, reversed(six))}
    data["environment"] = {f"TEXT{place}": one for place, one in enumerate(six)}
    made = vault_create(
        actor=root, name=six[0][:100], text=json.dumps(data), format="json", is_active=True,
        group=dev if number % 12 else None, enforced=["*"] if number % 12 else [])
    vault_change(actor=root, vault=made, changes={"text": json.dumps({six[1]: six})})
    paths += [reverse("vault_detail", args=[made.pk]), reverse("vault_delete", args=[made.pk])]
    paths.append(reverse("vault_version", args=[made.pk, 1]))
    values = {"name": six[2][:100], "client_id": six[3][:300], "discovery_url": "https://x.test/",
              "scopes": six[4][:200], "extra_scopes": six[5][:500], "claim_groups": six[0][:200]}
    row = provider_create(actor=root, preset="oidc", values=values)
    mapping_set(row, [(one, dev) for one in six])
    paths.append(reverse("identity_edit", args=[row.slug]))
    paths.append(reverse("identity_delete", args=[row.slug]))
made = service_account_create(actor=root, name="program", groups=["demo-dev"])
paths.append(reverse("service_account", args=[made.account.pk]))
registry_credential_save(
    actor=root, group=dev, registry="r.example.org", username=payloads[1][:100], password="x")
task = Task.objects.filter(owner__username="demo-dev").first()
paths.append(reverse("task_detail", args=[task.pk]))
print(json.dumps(paths))
"""
# Access rules and tenants: what they are about and whom they name; prints addresses, too.
FILL_RULES = """
import json, sys
from urllib.parse import urlencode
from django.contrib.auth.models import Group
from django.urls import reverse
from apps.accounts.models import User
from apps.accounts.services.people import user_create
from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target, rule_key
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.policies import policy_create
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.configuration.services.tenants import tenant_create

payloads = json.load(sys.stdin)
root = User.objects.get(username="demo-admin")
paths = []
for number in range(0, 60, 12):
    name, group, heads, *texts = payloads[number:number + 12]
    group, heads = (Group.objects.get_or_create(name=one[:150])[0] for one in (group, heads))
    policy = policy_create(
        actor=root, name=name[:100], group=group, description="\\n".join(texts)[:900])
    member = user_create(username=f"member-{number}", password=None, groups=[group.name])
    target = Target(RuleKind.POLICY, str(policy.pk))
    subjects = RuleSubjects(groups=(heads,))
    rule_grant(actor=root, target=target, level=Level.MANAGE, subjects=subjects)
    key = rule_key(target, Level.MANAGE)
    policy_restrict(actor=root, policy=policy, people=[member])
    paths += [reverse("access_edit", args=[key]), reverse("access_remove", args=[key])]
    paths.append(reverse("access_restrict", args=[policy.pk]))
    asked = {"user": texts[0], "kind": "policy", "object": texts[1]}
    answered = {"user": member.username, "kind": "policy", "object": policy.name}
    paths += [reverse("access_explain") + "?" + urlencode(one) for one in (asked, answered)]
    paths.append(reverse("access_list") + "?" + urlencode({"subject": texts[2], "name": name}))
    if number % 24 == 0:
        made = tenant_create(actor=root, top=policy, admin_group=heads, groups=[group])
        paths += [reverse("tenant_edit", args=[made.pk]), reverse("tenant_delete", args=[made.pk])]
print(json.dumps([*paths, reverse("access_list"), reverse("tenant_list")]))
"""
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation of its own: nobody else wants to look at these names."""
    need("chromium")
    with demonstration(tmp_path_factory.mktemp("payloads")) as site:
        site.manage("shell", "-c", FILL, content=json.dumps([PAYLOADS, FOR_LOGS]))
        for script in (FILL_RULES, FILL_SETTINGS):
            output = site.manage("shell", "-c", script, content=json.dumps(PAYLOADS))
            site.output += json.loads(output.splitlines()[-1])
        yield site


def test_there_are_sixty_different_ones() -> None:
    assert len(set(PAYLOADS)) == 60


def test_no_page_runs_what_somebody_wrote_somewhere(filled: Installation, page: Page) -> None:
    seen: list[str] = []
    page.on("dialog", lambda dialog: _note(seen, page, f"a dialog: {dialog.message}", dialog))
    page.on("console", lambda line: _console(seen, page, line))
    page.on("pageerror", lambda error: seen.append(f"{page.url}: {error}"))
    page.add_init_script(WATCH)
    page.goto(f"{filled.address}/sign-in/")
    seen += [f"sign-in: {one}" for one in page.evaluate(MADE)]
    sign_in(filled, page, "admin")
    paths = [*PATHS, "/tasks/?view=drafts", *details(page, filled), *filled.output]

    for path in paths:
        if path == "/nowhere/":
            continue
        page.goto(filled.address + path)
        expect(page.locator("h1").first).to_be_attached()
        if path == filled.output[-1]:
            # A page that asks for what the vaults bring.
            expect(page.get_by_role("heading", name="From vaults")).to_be_visible()
        seen += [f"{path}: policy: {one}" for one in page.evaluate("window.violations")]
        seen += [f"{path}: {one}" for one in page.evaluate(MADE)]

    assert seen == []


# Elements that only a payload makes.
MADE = """() => [...document.querySelectorAll(
  "img[src='x'], marquee, embed, object, math, base, main iframe, main video, [onload], [onerror]")]
  .map((one) => one.outerHTML.slice(0, 100))"""


def test_a_list_shows_them_as_they_were_written(filled: Installation, page: Page) -> None:
    sign_in(filled, page, "admin")
    page.goto(f"{filled.address}/tasks/?view=all")

    # The latest but one: lists begin with the newest.
    expect(page.get_by_text(PAYLOADS[-2], exact=True).first).to_be_visible()


def _note(seen: list[str], page: Page, words: str, dialog: Any) -> None:
    seen.append(f"{page.url}: {words}")
    dialog.dismiss()


def _console(seen: list[str], page: Page, line: Any) -> None:
    if line.type == "error":
        seen.append(f"{page.url}: {line.text}")
