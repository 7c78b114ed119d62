"""Systems broken on purpose: the code of this repository with one safeguard removed.

Each is copied, patched and run through the faults that need the safeguard; the checker has to
report it. The same run of the code as it is has to be clean.

    python -m tests.chaos --seeded            all of them, and the code as it is
    python -m tests.chaos --seeded no-fence   one
"""

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.checker import KINDS, check
from tests.chaos.history import History

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("apps", "client", "rpm", "tests", "tools", "templates", "static", "manage.py")
UNBROKEN: Final = "unbroken"
MOST_S: Final = 1800


@dataclass(frozen=True, slots=True)
class Patch:
    """In this file `new` instead of `old`, which stands there once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SeededBug:
    """A system without one safeguard.

    Args:
        kinds: what the checker has to find at least one of.
        faults: classes and times of the run that needs the safeguard, as `--fault` takes them.
    """

    name: str
    kinds: tuple[str, ...]
    patches: tuple[Patch, ...]
    faults: tuple[str, ...]
    words: tuple[str, ...] = ("--short", "--tasks", "100")


class PatchDoesNotApply(Exception):
    """The code has changed: aim the patch at the same safeguard again."""


@dataclass(frozen=True, slots=True)
class SeededResult:
    """What the checker found in one run; `words` is the first breach of a wanted kind."""

    name: str
    counts: Counter[str]
    words: str
    is_caught: bool

    def __str__(self) -> str:
        found = ", ".join(f"{kind} {count}" for kind, count in self.counts.items() if count)
        return f"{self.name}: {found or 'nothing'}" + (f" ({self.words})" if self.words else "")


NODE: Final = "apps/execution/node"
# Nodes that are cut off do not hear that their results are stored; old launches come meanwhile.
REPEATED: Final = tuple(
    fault
    for turn in range(3)
    for node in (1, 2, 3)
    for fault in (
        f"{6 + 9 * turn + node}:partition:node-{node}:4",
        f"{7.5 + 9 * turn + node}:launch-repeated:node-{node}:0",
        f"{9 + 9 * turn + node}:launch-repeated:node-{node}:0",
        f"{12.5 + 9 * turn + node}:launch-repeated:node-{node}:0",
    )
)
SEEDED: Final = (
    SeededBug(
        "no-fence",
        ("re-run without node loss", "overlapping"),
        (
            Patch(
                f"{NODE}/members.py",
                "        _refuse_behind_fence(home, spec.identity)\n",
                "",
            ),
        ),
        REPEATED,
    ),
    SeededBug(
        "starts-anything-that-exists",
        ("re-run without node loss", "overlapping"),
        (
            Patch(
                f"{NODE}/members.py",
                'is_begun = member.has("starting") or member.has("exit.json")',
                "is_begun = member.is_supervised()",
            ),
        ),
        REPEATED,
    ),
    SeededBug(
        "no-lease",
        ("overlapping",),
        (
            Patch(
                f"{NODE}/watchdog.py",
                "    if lease is None:\n        return CHECK_EVERY_S\n",
                "    if True:\n        return CHECK_EVERY_S\n",
            ),
        ),
        ("10:partition:node-1:22", "10.5:partition:node-2:22"),
        ("--work", "26", "--tasks", "14", "--lease", "6"),
    ),
    SeededBug(
        "lock-held-by-a-stopped-process",
        ("killed", "wrong result", "overlapping", "re-run without node loss"),
        (
            # A process that served the node once goes on to write what it knew then.
            Patch(
                "apps/execution/services/node_ownership.py",
                "        if not _is_served(node_id, token):\n",
                "        if not _is_served(node_id, token) and not token:\n",
            ),
            Patch(
                "apps/execution/services/applier.py",
                "        if self._before.get(row.pk) != MemberState.RUNNING:\n"
                "            return False\n",
                "",
            ),
        ),
        # The process that takes the nodes over launches for some seconds before the first one wakes
        # up, with an answer that is older.
        (
            "6:server-stop:server-1:9",
            "18:server-stop:server-2:9",
            "30:server-stop:server-1:9",
        ),
        ("--short", "--tasks", "140"),
    ),
    SeededBug(
        "ledger-not-unique",
        ("ledger", "overlapping"),
        (
            Patch(
                "apps/tasks/services/members/ledger.py",
                "    wanted = set(devices)\n    if not wanted:\n",
                "    wanted = set(devices)\n    if wanted:\n",
            ),
            Patch(
                "apps/tasks/services/members/launch.py",
                "return not blockers.exists() and devices_claim(member)",
                "return devices_claim(member)",
            ),
            Patch("apps/execution/selectors.py", "        .exclude(attempt__in=blockers)\n", ""),
            Patch(
                "apps/tasks/migrations/0001_initial.py",
                'condition=models.Q(("milli", 1000), ("released_at__isnull", True))',
                'condition=models.Q(("milli", 1), ("released_at__isnull", True))',
            ),
        ),
        ("8:server-stop:server-1:2", "14:partition:node-1:3", "20:server-kill:server-2:1"),
        # A victim lives on through its grace period, on the GPU of the task that it makes way for.
        ("--tasks", "30", "--slots", "2", "--stubborn"),
    ),
    SeededBug(
        "retry-without-token",
        ("doubled",),
        (
            Patch(
                "apps/tasks/services/enqueue/idempotency.py",
                "    if given is None:\n        return None\n    row",
                "    return None\n    row",
            ),
            Patch(
                "apps/tasks/services/enqueue/idempotency.py",
                "    if given is None:\n        return\n    Idem",
                "    return\n    Idem",
            ),
        ),
        (
            "6:web-kill:web-2:1",
            "9:commit-answer-lost:postgres:3",
            "15:commit-answer-lost:postgres:3",
        ),
    ),
)
BY_NAME: Final = {one.name: one for one in SEEDED}


def run_seeded(names: Sequence[str], *, seed: int) -> list[SeededResult]:
    """Each broken system, and the code as it is through the same faults."""
    chosen = [BY_NAME[name] for name in names] or list(SEEDED)
    runs: dict[tuple[tuple[str, ...], tuple[str, ...]], list[SeededBug]] = {}
    for one in chosen:
        runs.setdefault((one.faults, one.words), []).append(one)
    seen = []
    for (faults, words), broken in runs.items():
        title = f"{UNBROKEN}, as {', '.join(one.name for one in broken)}"
        broken.append(SeededBug(title, (), (), faults, words))
    for one in (one for several in runs.values() for one in several):
        seen.append(carry_out(one, seed=seed))
        sys.stdout.write(f"{seen[-1]}\n")
        sys.stdout.flush()
    return seen


def carry_out(one: SeededBug, *, seed: int) -> SeededResult:
    """Copy, patch, run, and judge with the checker of this tree."""
    with tempfile.TemporaryDirectory(prefix="rpm-seeded-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        copy_tree(folder / "tree")
        apply(one.patches, folder / "tree")
        words = [
            *("--seed", str(seed), "--seconds", "35", "--containers", "0"),
            *("--podman-nodes", "0", "--process-nodes", "3", "--slots", "8"),
            *("--drain", "90", "--small"),
            *("--keep", str(folder / "kept"), *one.words),
            *(word for fault in one.faults for word in ("--fault", fault)),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "tests.chaos", *words],
            cwd=folder / "tree",
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
        history = folder / "kept" / "history.json"
        if not history.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-4000:])
        return judged(one, msgspec.json.decode(history.read_bytes(), type=History))


def judged(one: SeededBug, history: History) -> SeededResult:
    verdict = check(history)
    counts = Counter({kind: verdict.count(kind) for kind in KINDS})
    wanted = [breach.words for breach in verdict.breaches if breach.kind in one.kinds]
    is_caught = bool(wanted) if one.kinds else not verdict.breaches
    words = wanted[0] if wanted else next((breach.words for breach in verdict.breaches), "")
    return SeededResult(one.name, counts, words, is_caught)


def copy_tree(target: Path) -> None:
    """What a run needs of this repository."""
    target.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "node_modules")
            shutil.copytree(ROOT / name, target / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, target / name)


def apply(patches: Sequence[Patch], folder: Path) -> None:
    """Change files below the folder.

    Raises:
        PatchDoesNotApply: what is to be replaced is not there, or there more than once.
    """
    for patch in patches:
        path = folder / patch.path
        source = path.read_text(encoding="utf-8")
        if source.count(patch.old) != 1:
            raise PatchDoesNotApply(f"{patch.path}: {patch.old!r}")
        path.write_text(source.replace(patch.old, patch.new), encoding="utf-8")
