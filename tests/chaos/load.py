"""A client that enqueues, looks, and aborts all the time, and keeps every answer."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.history import AcceptedTask, Response
from tests.chaos.machine import boot_clock

TIMEOUT_S = 4.0
STEP_S = 0.15
# Faults find work to hit until the end, and the last work still ends within the run.
LAST_AT = 0.95


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One task that the client will ask for, `at_s` after the run began."""

    at_s: float
    key: str
    body: dict[str, Any]
    is_aborted: bool


@dataclass(frozen=True, slots=True)
class QueueTarget:
    """What a queue's work is started with."""

    queue: str
    body: dict[str, Any]
    program: str


def planned_tasks(
    *,
    seed: int,
    seconds: float,
    count: int,
    containers: int,
    queue_targets: dict[str, list[QueueTarget]],
    mean_s: float = 5,
    lasts_s: float = 0,
    ignores_sigterm: bool = False,
) -> list[PlannedTask]:
    """Draw the tasks: nearly all through the run, some of every kind.

    Args:
        containers: how many of them go to the queues whose nodes run containers.
        places: kind of runtime -> its queues.
        mean_s: how long the work lasts, four times as much at most.
        lasts_s: all of it lasts exactly so long, ends well, begins at once and is never aborted.
        ignores_sigterm: all of it ignores SIGTERM, not only some.
    """
    rng = random.Random(f"{seed} work")
    kinds = ["podman"] * containers + ["process"] * (count - containers)
    rng.shuffle(kinds)
    found = []
    for number, kind in enumerate(kinds):
        place = rng.choice(queue_targets[kind])
        own_s = round(min(rng.expovariate(1 / mean_s) + 0.2, 4 * mean_s), 2)
        code = rng.choices((0, 3), (9, 1))[0]
        manner = rng.choices(("plain", "stubborn", "leaver"), (8, 1, 1))[0]
        manner = "stubborn" if ignores_sigterm else manner
        body = {
            **place.body,
            "name": f"chaos-{number}",
            "queue": place.queue,
            "command": [place.program, str(own_s), str(code), manner],
            "retries": rng.choices((0, 2), (7, 3))[0],
        }
        at_s = rng.uniform(0, seconds * LAST_AT)
        is_aborted = rng.random() < 0.08
        if lasts_s:
            body["command"] = [place.program, str(lasts_s), "0", "plain"]
            at_s, is_aborted = 0, False
        found.append(PlannedTask(at_s, f"{seed}-{number}", body, is_aborted))
    return sorted(found, key=lambda planned: planned.at_s)


@dataclass(slots=True)
class Client:
    """Asks whichever web process answers; what was not answered is asked again with its key."""

    addresses: list[str]
    credential: tuple[str, str]
    planned_tasks: list[PlannedTask]
    began_s: float
    seed: int
    accepted: list[AcceptedTask] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    to_abort: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.to_abort = frozenset(
            planned.key for planned in self.planned_tasks if planned.is_aborted
        )

    def start(self) -> threading.Thread:
        """Ask from a thread of its own until `is_over` is set and every wish was answered."""
        thread = threading.Thread(target=self._run, name="client", daemon=True)
        thread.start()
        return thread

    @property
    def is_done(self) -> bool:
        """Whether every wish was answered."""
        return len(self.accepted) + len(self.refused) >= len(self.planned_tasks)

    def _run(self) -> None:
        rng = random.Random(f"{self.seed} client")
        open_wishes = list(self.planned_tasks)
        with httpx.Client(auth=self.credential, timeout=TIMEOUT_S) as http:
            while not self.is_over.is_set():
                now = boot_clock() - self.began_s
                if open_wishes and open_wishes[0].at_s <= now:
                    planned = open_wishes.pop(0)
                    if not self._submit(http, rng, planned):
                        open_wishes.insert(0, planned)
                    continue
                self._look(http, rng)
                self.is_over.wait(STEP_S)

    def _submit(self, http: httpx.Client, rng: random.Random, planned: PlannedTask) -> bool:
        """Whether the wish was answered for good."""
        headers = {"Idempotency-Key": planned.key}
        answer = self._ask(http, rng, "POST", "/tasks/", json=planned.body, headers=headers)
        if answer is None or answer.status_code >= 500:
            self.is_over.wait(STEP_S)
            return False
        if answer.status_code >= 400:
            self.refused.append(f"{answer.status_code} {answer.text[:300]}")
            return True
        task = str(answer.json()["id"])
        self.accepted.append(AcceptedTask(planned.key, task))
        if rng.random() < 0.1:
            # Sent twice although it was answered: the same task, never another.
            again = self._ask(http, rng, "POST", "/tasks/", json=planned.body, headers=headers)
            if again is not None and again.status_code < 400:
                self.accepted.append(AcceptedTask(planned.key, str(again.json()["id"])))
                self.accepted[:] = list(dict.fromkeys(self.accepted))
        return True

    def _look(self, http: httpx.Client, rng: random.Random) -> None:
        kind = rng.random()
        if kind < 0.5 or not self.accepted:
            self._ask(http, rng, "GET", "/tasks/?limit=50")
            return
        task = rng.choice(self.accepted)
        marked = [one for one in self.accepted if one.key in self.to_abort]
        if kind < 0.7:
            self._ask(http, rng, "GET", f"/tasks/{task.task}/")
        elif kind < 0.8:
            self._ask(http, rng, "GET", f"/tasks/{task.task}/logs/")
        elif kind < 0.9 or not marked:
            self._ask(http, rng, "GET", f"/tasks/{task.task}/explain/")
        else:
            self._ask(http, rng, "POST", f"/tasks/{rng.choice(marked).task}/abort/")

    def _ask(
        self, http: httpx.Client, rng: random.Random, method: str, path: str, **words: Any
    ) -> httpx.Response | None:
        address = rng.choice(self.addresses)
        at_s = boot_clock()
        try:
            answer = http.request(method, f"{address}/api/v1{path}", **words)
        except httpx.HTTPError as error:
            self.responses.append(Response(at_s, path, 0, words=type(error).__name__))
            return None
        has_after = "retry-after" in answer.headers
        text = answer.text[:300] if answer.status_code >= 500 else ""
        self.responses.append(Response(at_s, path, answer.status_code, has_after, text))
        return answer
