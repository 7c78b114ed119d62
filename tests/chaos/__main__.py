"""`make chaos`: breaks an installation in every way at once and proves that the promise holds.

python -m tests.chaos --seconds 600 --seed 7 --faults 300 --tasks 300
python -m tests.chaos --seconds 30 --faults 5 --only reboot,flap
python -m tests.chaos --seconds 30 --fault 5.00:reboot:node-1:2.00
"""

import secrets
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path

from tests.chaos.classes import BY_NAME
from tests.chaos.run import Plan, carry_out, say
from tests.chaos.schedule import parse_fault
from tests.chaos.world import what_is_missing


def main() -> int:
    plan = asked()
    reason = what_is_missing()
    if reason:
        say(f"chaos: {reason}")
        return 2
    # Whoever ends this program ends everything that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say(f"seed {plan.seed}")
    outcome = carry_out(plan)
    sys.stdout.write(f"{outcome.text}\n")
    missing = [name for name, count in outcome.injected.items() if not count]
    if missing:
        sys.stdout.write(f"  never injected: {', '.join(missing)}\n")
    sys.stdout.write("good\n" if outcome.is_good else "NOT good\n")
    return 0 if outcome.is_good else 1


def asked() -> Plan:
    """The command line; the exit of argparse where it makes no sense."""
    parser = ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--containers", type=int, help="of the tasks; a fifth unless given")
    parser.add_argument("--podman-nodes", type=int, default=2)
    parser.add_argument("--process-nodes", type=int, default=4)
    parser.add_argument("--drain", type=float, default=240, help="seconds for the work to end")
    parser.add_argument("--only", default="", help="classes of faults, by commas")
    parser.add_argument("--fault", action="append", default=[], type=parse_fault)
    parser.add_argument("--keep", type=Path, help="folder for logs, journals and the history")
    given = parser.parse_args()
    names = tuple(filter(None, given.only.split(",")))
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        parser.error(f"no such class: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if given.podman_nodes < 1 or given.process_nodes < 1:
        parser.error("at least one node of each kind is needed")
    return Plan(
        seed=given.seed,
        seconds=given.seconds,
        faults=given.faults,
        tasks=given.tasks,
        containers=given.tasks // 5 if given.containers is None else given.containers,
        podman_nodes=given.podman_nodes,
        process_nodes=given.process_nodes,
        drain_s=given.drain,
        names=names,
        chosen=tuple(sorted(given.fault)),
        keep=given.keep,
    )


if __name__ == "__main__":
    sys.exit(main())
