"""Engines whose source is changed in a line or two. A patch that no longer applies says so."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from tests.allocation.engine.broken.misreadings import Broken
from tests.allocation.engine.laws.history import Decide

PACKAGE = "apps.allocation.engine"
# What snapshots and plans are made of stays the same, so that laws can read them.
MODEL = f"{PACKAGE}.model"


@dataclass(frozen=True)
class Patch:
    """In a module of the engine, `new` instead of `old`, which occurs there once."""

    module: str
    old: str
    new: str


class PatchDoesNotApply(Exception):
    """The engine's source has changed: aim the patch at the same rule again."""


class _Loader(SourceFileLoader):
    patches: tuple[Patch, ...] = ()

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        for patch in self.patches:
            if fullname == f"{PACKAGE}.{patch.module}":
                if source.count(patch.old) != 1:
                    raise PatchDoesNotApply(f"{patch.module}: {patch.old!r}")
                source = source.replace(patch.old, patch.new)
        return compile(source, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, patches: tuple[Patch, ...]) -> None:
        self.patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{PACKAGE}."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            loader = _Loader(fullname, spec.origin)
            loader.patches = self.patches
            spec.loader = loader
        return spec


def patched(*patches: Patch) -> Decide:
    """The engine's `decide`, its modules loaded once more with the patches in them."""
    package = sys.modules[PACKAGE]
    names = dict(vars(package))
    mine = [name for name in sys.modules if _is_loaded_again(name)]
    kept = {name: sys.modules.pop(name) for name in mine}
    finder = _Finder(patches)
    sys.meta_path.insert(0, finder)
    try:
        found = importlib.import_module(f"{PACKAGE}.decision").decide
    finally:
        sys.meta_path.remove(finder)
        for name in [one for one in sys.modules if _is_loaded_again(one)]:
            del sys.modules[name]
        sys.modules.update(kept)
        vars(package).clear()
        vars(package).update(names)
    return found  # type: ignore[no-any-return]  # the module's own function


def _is_loaded_again(module: str) -> bool:
    is_kept = module == MODEL or module.startswith(f"{MODEL}.")
    return module.startswith(f"{PACKAGE}.") and not is_kept


def changed(law: str, name: str, *patches: Patch) -> Broken:
    """An engine of which the source is changed."""
    engine: Callable[[Decide], Decide] = lambda _decide: patched(*patches)  # noqa: E731
    return Broken(name, law, engine)


CHANGED = (
    changed(
        "nobody_loses_what_is_theirs",
        "takes_where_any_policy_of_the_path_is_over",
        Patch(
            "steps.preemption.rights",
            "if not all(\n            self.is_over_reservation(policy, candidate)",
            "if not any(\n            self.is_over_reservation(policy, candidate)",
        ),
    ),
    changed(
        "every_victim_is_needed",
        "puts_no_victim_back",
        Patch("steps.preemption.victim_search", "        if self._fits():", "        if False:"),
        Patch("steps.preemption.step", "if can_restore(self.state, victim) and", "if False and"),
    ),
    changed(
        "covered_work_gets_its_claims",
        "takes_one_victim_at_most",
        Patch(
            "steps.preemption.victim_search",
            "            candidate = self._worst()\n",
            "            candidate = None if self.chosen else self._worst()\n",
        ),
    ),
    changed(
        "a_pass_ends_soon",
        "walks_thrice_whatever_happens",
        Patch(
            "decision",
            "            return has_placed\n",
            "            return has_placed or state.walks < 3\n",
        ),
    ),
    changed(
        "a_pass_ends_soon",
        "walks_twice_where_once_is_enough",
        Patch(
            "decision",
            "and _walk(state, preemption):",
            "and _walk(state, preemption) | _walk(state, preemption):",
        ),
    ),
    changed(
        "a_pass_ends_soon",
        "lowers_what_is_offered_one_by_one",
        Patch(
            "steps.match",
            "caps[index] = found[index]",
            "caps[index] = max(found[index], caps.get(index, 40) - 1)",
        ),
    ),
)
