"""The page that adds a node step by step."""

import shlex
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from apps.accounts.models import User
from apps.core.errors import RpmError
from apps.core.manage_command import manage_command
from apps.dashboard.access import require_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_nodes import SHARED, NodeForm
from apps.dashboard.toasts import say
from apps.execution.preflight_findings import PreflightFinding
from apps.execution.protocol.answers import NodeInventory
from apps.execution.services.node_examination import machine_examine
from apps.execution.services.node_keys import NAME
from apps.execution.services.node_registration import (
    host_key_confirmed,
    node_add,
    node_clean,
    node_host_key,
)
from apps.nodes.models import Node, Runtime

_CHECKS = "dashboard.node_add.checks"
# An error there is about the machine: its key is to be confirmed again.
_OF_THE_KEY = frozenset({"address", "port", "fingerprint", "host_key"})


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def node_add_page(request: HttpRequest) -> HttpResponse:
    """Prepare, connect, confirm the host key, read the preflight checks, add."""
    user = require_administrator(request)
    is_sent = request.method == "POST"
    form = NodeForm(
        request.POST if is_sent else None, initial={"pool": request.GET.get("pool")}, user=user
    )
    found: dict[str, Any] = {}
    if is_sent:
        names: set[str] = set()
        if form.is_valid():
            try:
                columns = form.columns()
                if request.POST.get("step") == "add":
                    return _add(request, user, columns)
                found = _next_step(columns, request.POST.get("fingerprint", ""))
            except RpmError as error:
                names = set(error.fields)
                add_errors(form, error)
        if form.errors and not (names | set(form.errors)) & _OF_THE_KEY:
            found = _stored_checks(request)
    form.hide_sharing_unless_needed()
    focus_first_error(form)
    status = 400 if form.errors else 200
    context = {
        "form": form,
        "lines": _lines(form),
        "is_service": bool(settings.SERVICE_ACCOUNT),
        "is_root": form["user"].value() == "root",
        "is_example": not form["name"].value(),
        **_steps(found),
        **found,
    }
    return render(request, "pages/node_add.html", context, status=status)


def _next_step(columns: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    """The machine's host key; with a confirmed fingerprint, its preflight checks."""
    address, port = columns["address"], columns["port"]
    if not fingerprint:
        # The form is validated first: a name in use would cost a connection to the machine.
        node_clean(Node(**{name: columns[name] for name in columns if name != SHARED}))
        return {"shown": node_host_key(address=address, port=port)}
    key = host_key_confirmed(address, port, fingerprint)
    inventory, findings = machine_examine(host_key=key, **columns)
    return _check_context(key.fingerprint, findings, _devices(inventory))


def _add(request: HttpRequest, user: User, columns: dict[str, Any]) -> HttpResponse:
    wanted = request.POST.get("fingerprint", "")
    key = host_key_confirmed(columns["address"], columns["port"], wanted)
    node = node_add(actor=user, host_key=key, **columns)
    say(request, f"{node.name} is added.")
    return redirect("node_detail", node.pk)


def _devices(inventory: NodeInventory) -> list[dict[str, Any]]:
    return [
        {"index": one.index, "model": one.model, "memory_mb": one.memory_mb}
        for one in inventory.devices
    ]


def _check_context(
    fingerprint: str, findings: list[PreflightFinding], devices: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the page shows of the checks, and `checks`, the same for the next request."""
    plain = [[one.name, one.is_fine, one.words, one.fix] for one in findings]
    failed = [one for one in findings if not one.is_fine]
    return {
        "confirmed": fingerprint,
        "blocking": [one for one in failed if one.is_blocking],
        "warnings": [one for one in failed if not one.is_blocking],
        "passed": [one for one in findings if one.is_fine],
        "devices": devices,
        "checks": signing.dumps([fingerprint, plain, devices], salt=_CHECKS, compress=True),
    }


def _stored_checks(request: HttpRequest) -> dict[str, Any]:
    """The confirmed key and its checks, as the page sent them along; only ours are shown."""
    fingerprint = request.POST.get("fingerprint", "")
    try:
        known, plain, devices = signing.loads(request.POST.get("checks", ""), salt=_CHECKS)
    except (signing.BadSignature, ValueError):
        return {}
    if known != fingerprint:
        return {}
    return _check_context(fingerprint, [PreflightFinding(*one) for one in plain], devices)


def _steps(found: dict[str, Any]) -> dict[str, Any]:
    """Titles of the steps with their state: `done`, `now` or `later`."""
    now = 4 if "confirmed" in found else 3 if "shown" in found else 2
    titles = ("Prepare the machine", "Connect", "Confirm the host key", "Preflight checks")
    states = ["done" if at < now else "now" if at == now else "later" for at in range(1, 5)]
    return {"steps": list(zip(range(1, 5), titles, states, strict=True)), "now": now}


def _lines(form: NodeForm) -> list[str]:
    """Commands that prepare the machine: two on the server, then one as root on the machine.

    On a server with systemd, root runs them: the key belongs to the account of the services.
    """
    name, key = str(form["name"].value() or ""), str(form["key"].value() or "")
    name = name if NAME.fullmatch(name) else "gpu01"
    path = shlex.quote(str(settings.HOME.file(key if NAME.fullmatch(key) else name)))
    script = shlex.quote(f"prepare-{name}.sh")
    address = str(form["address"].value() or f"{name}.example.org")
    account = str(form["user"].value() or "rpm-node")
    port = str(form["port"].value() or "")
    at_port = f"-p {port} " if port.isdecimal() and port != "22" else ""
    runtime = "docker" if form["runtime"].value() == "docker" else "podman"
    root = shlex.quote(f"root@{address}")
    make_key = f"ssh-keygen -t ed25519 -N '' -f {path}"
    if settings.SERVICE_ACCOUNT:
        make_key = f"runuser -u {shlex.quote(settings.SERVICE_ACCOUNT)} -- {make_key}"
    if account == "root":
        # The script makes an account of its own, and refuses this one.
        return [make_key, f"ssh-copy-id {at_port}-i {path}.pub {root}"]
    options = f"--public-key {path}.pub --account {shlex.quote(account)} --runtime {runtime}"
    if form["runtime"].value() == Runtime.PROCESS or form["allows_process"].value():
        options += " --allow process"
    return [
        make_key,
        # The shell writes the script: the account of the services cannot write to most folders.
        f"{manage_command()} node prepare {options} > {script}",
        f"ssh {at_port}{root} sh < {script}",
    ]
