"""The allocation engine: a snapshot in, a plan out. Pure."""

from apps.allocation.engine.decision import decide

__all__ = ["decide"]
