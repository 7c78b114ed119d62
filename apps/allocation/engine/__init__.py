"""The allocation engine: a snapshot in, a plan out. Pure."""

from apps.allocation.engine.decision import Engine, decide

__all__ = ["Engine", "decide"]
