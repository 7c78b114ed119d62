"""Steps by number, for Hypothesis and for plain chance; and the way to a quiet end."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.execution.machine.database import Attempt, Task
from tests.execution.machine.world import World

POLICIES = ("wait", "requeue", "fail")
NODES = ("a", "b")
TIMES_S = (0.5, 3.0, 12.0, 35.0, 90.0, 700.0)


def step(world: World, name: str, pick: int) -> None:
    """One thing happens, where it can; `pick` chooses to what."""
    _STEPS[name](world, pick)
    world.settle()
    world.check()


def _node(pick: int) -> str:
    return NODES[pick % 2]


def _queued(world: World) -> list[Task]:
    return [task for task in world.database.tasks.values() if task.state == "queued"]


def _live(world: World) -> list[Attempt]:
    return [one for one in world.database.attempts.values() if one.phase != "over"]


def _submit(world: World, pick: int) -> None:
    if len(_queued(world)) + len(_live(world)) < 4:
        world.submit(POLICIES[pick % 3])


def _admit(world: World, pick: int) -> None:
    for task in _queued(world)[:1]:
        world.admit(task, _node(pick))


def _of_live(act: Callable[[World, Attempt, int], None]) -> Callable[[World, int], None]:
    def chosen(world: World, pick: int) -> None:
        live = _live(world)
        if live:
            act(world, live[pick % len(live)], pick // 7)

    return chosen


def _deliver(world: World, pick: int) -> None:
    if world.messages:
        index, pick = pick % len(world.messages), pick // 7
        world.deliver(index, is_kept=pick % 4 == 0, is_answered=pick // 5 % 3 > 0)


def _lose(world: World, pick: int) -> None:
    if world.messages:
        world.lose(pick % len(world.messages))


def _finish(world: World, pick: int) -> None:
    for member in world.nodes[_node(pick)].alive()[:1]:
        world.finish(_node(pick), member, (0, 0, 3)[pick % 3])


def _sometimes(act: Callable[[World, int], None], one_in: int) -> Callable[[World, int], None]:
    return lambda world, pick: act(world, pick // one_in) if pick % one_in == 0 else None


_STEPS: Final[Mapping[str, Callable[[World, int], None]]] = {
    "submit": _submit,
    "admit": _admit,
    "launch": _of_live(lambda world, one, _: world.launch(one)),
    "deliver": _deliver,
    "lose": _lose,
    "ask": lambda world, pick: world.ask(_node(pick)),
    "answer": lambda world, pick: world.answer(_node(pick), is_lost=pick // 7 % 5 == 0),
    "finish": _finish,
    "stop": _of_live(lambda world, one, pick: world.stop(one, ("aborted", "queued")[pick % 2])),
    "send_stop": _of_live(lambda world, one, pick: world.send_stop(one, is_kill=pick % 2 == 0)),
    "pass_time": lambda world, pick: world.pass_time(TIMES_S[pick % 6]),
    "cut": lambda world, pick: world.cut.add(_node(pick)),
    "reconnect": lambda world, pick: world.cut.discard(_node(pick)),
    "silent": lambda world, pick: world.fall_silent(_node(pick)),
    "judge": lambda world, pick: world.judge(_node(pick)),
    "take_over": lambda world, _: world.take_over(),
    "power_off": _sometimes(lambda world, pick: world.power(_node(pick), is_on=False), 3),
    "power_on": lambda world, pick: world.power(_node(pick), is_on=True),
    "declare_off": lambda world, pick: world.declare_off(_node(pick)),
    "backup": lambda world, _: world.backup(),
    "restore": _sometimes(lambda world, _: world.restore(), 5),
    "confirm": lambda world, _: world.confirm(),
}
STEPS = tuple(_STEPS)


def calm(world: World) -> None:
    """Nothing fails any more: everything comes to its end, and nobody is left on a node."""
    for _ in range(60):
        if _is_quiet(world):
            return
        world.confirm()
        for name in NODES:
            world.cut.discard(name)
            world.power(name, is_on=True)
            world.answer(name, is_lost=False)
            for member in world.nodes[name].alive():
                world.finish(name, member, 0)
            world.ask(name)
            world.answer(name, is_lost=False)
            world.judge(name)
        world.settle()
        for task in list(world.database.tasks.values()):
            world.admit(task, "a")
        for attempt in list(world.database.attempts.values()):
            world.launch(attempt)
            world.send_stop(attempt, is_kill=True)
        while world.messages:
            world.deliver(0, is_kept=False, is_answered=True)
            world.check()
        world.pass_time(20.0)
        world.check()
    left = {name: list(node.members) for name, node in world.nodes.items()}
    waiting = [task for task in world.database.tasks.values() if task.state != "done"]
    raise AssertionError(f"it does not come to rest: {waiting}, on nodes {left}")


def _is_quiet(world: World) -> bool:
    return all(task.state == "done" for task in world.database.tasks.values()) and not any(
        node.members for node in world.nodes.values()
    )
