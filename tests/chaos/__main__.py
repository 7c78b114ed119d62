"""`make chaos`: breaks an installation in every way at once and proves that the promise holds.

python -m tests.chaos --seconds 600 --seed 7 --faults 300 --tasks 300
python -m tests.chaos --seconds 30 --faults 5 --only reboot,flap
python -m tests.chaos --seconds 30 --fault 5.00:reboot:node-1:2.00
python -m tests.chaos --flaps 1000 | --recover 10 | --away 600 | --seeded
"""

import secrets
import signal
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from tests.chaos import seeded_bugs
from tests.chaos.fault_classes import BY_NAME
from tests.chaos.run import Plan, carry_out, say
from tests.chaos.schedule import Fault, make_flaps, make_repeated, parse_fault
from tests.chaos.world import target_names, what_is_missing

LASTING = 32
# By then all work that is to outlive it runs.
AWAY_AT_S = 30


def main() -> int:
    given = asked()
    reason = what_is_missing()
    if reason:
        say(f"chaos: {reason}")
        return 2
    # The end of this program ends everything that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if given.seeded is not None:
        return all_caught(seeded_bugs.run_seeded(given.seeded, seed=given.seed))
    return broken(plan_of(given))


def all_caught(seen: list[seeded_bugs.SeededResult]) -> int:
    """Each broken system was reported, and the code as it is was clean."""
    missed = [one.name for one in seen if not one.is_caught]
    sys.stdout.write(f"NOT good: {', '.join(missed)}\n" if missed else "good\n")
    return 1 if missed else 0


def broken(plan: Plan) -> int:
    """One run by this plan."""
    say(f"seed {plan.seed}")
    outcome = carry_out(plan)
    sys.stdout.write(f"{outcome.text}\n")
    missing = [name for name, count in outcome.injected.items() if not count]
    if missing:
        sys.stdout.write(f"  never injected: {', '.join(missing)}\n")
    sys.stdout.write("good\n" if outcome.is_good else "NOT good\n")
    return 0 if outcome.is_good else 1


def asked() -> Namespace:
    """The command line; the exit of argparse where it makes no sense."""
    parser = ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--faults", type=int, default=330)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--containers", type=int, help="of the tasks; a fifth unless given")
    parser.add_argument("--podman-nodes", type=int, default=2)
    parser.add_argument("--process-nodes", type=int, default=4)
    parser.add_argument("--drain", type=float, default=240, help="seconds for the work to end")
    parser.add_argument("--only", default="", help="classes of faults, by commas")
    parser.add_argument("--fault", action="append", default=[], type=parse_fault)
    parser.add_argument("--flaps", type=int, help="of the cables of 8 nodes, and nothing else")
    parser.add_argument("--recover", type=int, help="times that everything is killed at once")
    parser.add_argument("--away", type=float, help="seconds without a control plane, once")
    parser.add_argument("--small", action="store_true", help="one program of each kind, no beat")
    parser.add_argument("--lease", type=int, default=20, help="seconds, of queues that lend")
    parser.add_argument("--slots", type=int, default=3, help="GPUs of a node")
    parser.add_argument("--work", type=float, default=0, help="seconds that all work lasts")
    parser.add_argument("--short", action="store_true", help="work of seconds only")
    parser.add_argument("--stubborn", action="store_true", help="all work ignores SIGTERM")
    parser.add_argument("--seeded", nargs="*", help="broken systems, all of them unless named")
    parser.add_argument("--keep", type=Path, help="folder for logs, journals and the history")
    given = parser.parse_args()
    names = chosen_classes(given)
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        parser.error(f"no such class: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if given.process_nodes < 1:
        parser.error("at least one node is needed")
    if set(given.seeded or ()) - set(seeded_bugs.BY_NAME):
        parser.error(f"broken systems are {', '.join(seeded_bugs.BY_NAME)}")
    return given


def chosen_classes(given: Namespace) -> tuple[str, ...]:
    return tuple(filter(None, given.only.split(",")))


def plan_of(given: Namespace) -> Plan:
    """The plan that was asked for; three questions have plans of their own."""
    plan = general_plan(given)
    if given.flaps:
        names = target_names(podman_nodes=0, process_nodes=8)["node"]
        return lasting(plan, make_flaps(seed=plan.seed, count=given.flaps, nodes=names))
    if given.recover:
        again = make_repeated("everything-kill", count=given.recover, every_s=30, target="control")
        return lasting(plan, again)
    if given.away:
        return lasting(plan, (Fault(AWAY_AT_S, "control-away", "control", given.away),))
    return plan


def lasting(plan: Plan, faults: tuple[Fault, ...]) -> Plan:
    """Work on eight nodes that outlives all these faults, and nothing else happens."""
    over_s = max(fault.until_s for fault in faults)
    return replace(
        plan,
        chosen=faults,
        podman_nodes=0,
        process_nodes=8,
        containers=0,
        slots=LASTING // 8,
        tasks=min(plan.tasks, LASTING),
        seconds=over_s,
        # Long enough for the last of them to begin, and to see whether it still lives.
        lasts_s=over_s + 30,
        drain_s=plan.drain_s + over_s,
    )


def general_plan(given: Namespace) -> Plan:
    containers = given.tasks // 5 if given.podman_nodes else 0
    return Plan(
        seed=given.seed,
        seconds=given.seconds,
        faults=given.faults,
        tasks=given.tasks,
        containers=containers if given.containers is None else given.containers,
        podman_nodes=given.podman_nodes,
        process_nodes=given.process_nodes,
        drain_s=given.drain,
        names=chosen_classes(given),
        chosen=tuple(sorted(given.fault)),
        keep=given.keep,
        mean_s=1.5 if given.short else 8,
        lasts_s=given.work,
        is_small=given.small,
        ignores_sigterm=given.stubborn,
        lease_s=given.lease,
        slots=given.slots,
    )


if __name__ == "__main__":
    sys.exit(main())
