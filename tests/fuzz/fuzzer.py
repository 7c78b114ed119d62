"""Requests made from the OpenAPI schema, right and wrong ones, against a live server.

Every answer must be as documented: its status, its content type, its body; and none is a 5xx. The
same seed makes the same requests.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import hypothesis
import schemathesis
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.end_to_end.installation import Installation
from tests.services.timeouts import scale_timeout

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PASSWORD = "a password that nobody guesses"
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


@dataclass(slots=True)
class Outcome:
    """Counts of responses by status, and each difference from the documentation once."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Callers:
    """Administrators of the installation: requests may revoke a credential."""

    installation: Installation
    number: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    def are_gone(self) -> bool:
        path = f"{self.installation.address}/api/v1/preferences/"
        return httpx.get(path, headers=self.headers, timeout=scale_timeout(60)).status_code == 401

    def renew(self) -> None:
        self.number += 1
        client = self.installation.person(f"fuzz-{self.number}", "Admins", password=PASSWORD)
        # Whatever the client sends, schemathesis sends.
        sent = client.http.get("preferences/").request.headers
        self.headers = {"Authorization": sent["Authorization"]}


def fuzz(installation: Installation, *, requests: int, seed: int) -> Outcome:
    """About this many requests, the same number for each operation."""
    schema = schemathesis.openapi.from_path(SCHEMA)
    operations: list[Any] = [cast(Any, one).ok() for one in schema.get_all_operations()]
    each = math.ceil(requests / (len(operations) * len(MODES)))
    outcome, callers = Outcome(), Callers(installation)
    callers.renew()
    known = _ids(operations, callers)
    for operation in operations:
        for mode in MODES:
            run = _runner(operation, mode, callers, outcome, known)
            hypothesis.seed(seed)(_limited(run, each))()
    return outcome


def _limited(run: Callable[..., None], examples: int) -> Callable[[], None]:
    bounds = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    return bounds(run)


def _ids(operations: list[Any], callers: Callers) -> dict[str, list[Any]]:
    """Existing objects by the path of their list: invented ids would only give 404."""
    found = {}
    for path in sorted({one.path.partition("{")[0] for one in operations if "{" in one.path}):
        address = callers.installation.address + path
        answer = httpx.get(address, headers=callers.headers, timeout=scale_timeout(60))
        if answer.status_code == 200:
            body = answer.json()
            rows = body["results"] if isinstance(body, dict) and "results" in body else body
            keys = [row.get("id", row.get("number")) for row in rows if isinstance(row, dict)]
            found[path] = keys[:5]
    return found


def _aim(case: Any, known: list[Any], number: int) -> None:
    """Two of three requests use an existing object."""
    for name in case.path_parameters or {}:
        if known and number % 3:
            case.path_parameters[name] = known[number % len(known)]


def _runner(
    operation: Any,
    mode: GenerationMode,
    callers: Callers,
    outcome: Outcome,
    known: dict[str, list[Any]],
) -> Callable[..., None]:
    try:
        cases = operation.as_strategy(generation_mode=mode)
    except Exception as error:  # noqa: BLE001  # an operation without cases is reported
        outcome.problems[f"{operation.label}: no cases"] = str(error)
        return lambda: None

    @hypothesis.given(case=cases)
    def run(case: Any) -> None:
        _aim(case, known.get(operation.path.partition("{")[0], []), outcome.requests)
        answer = case.call(
            base_url=callers.installation.address,
            headers=callers.headers,
            timeout=scale_timeout(60),
        )
        outcome.requests += 1
        outcome.statuses[answer.status_code] += 1
        if answer.status_code == 401:
            # Invented by the case itself, or revoked by an earlier request.
            if callers.are_gone():
                callers.renew()
            return
        try:
            case.validate_response(answer, checks=CHECKS)
        except BaseExceptionGroup as group:
            for failure in group.exceptions:
                _note(outcome, operation.label, failure, case, answer)
        except Exception as failure:  # noqa: BLE001  # whatever is wrong is a finding
            _note(outcome, operation.label, failure, case, answer)

    return run


def _note(outcome: Outcome, label: str, failure: BaseException, case: Any, answer: Any) -> None:
    key = f"{label}: {type(failure).__name__}: {str(failure)[:120]}"
    if key not in outcome.problems:
        body = answer.text[:600]
        outcome.problems[key] = f"{failure}\n{case.as_curl_command()}\n{body}"


def said(outcome: Outcome) -> str:
    """A readable report."""
    counts = ", ".join(f"{count} x {status}" for status, count in sorted(outcome.statuses.items()))
    lines = [f"{outcome.requests} requests: {counts}"]
    lines += [f"\n{key}\n{words}" for key, words in outcome.problems.items()]
    return "\n".join(lines)
