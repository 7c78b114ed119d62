"""The allocation engine: a snapshot in, a plan out. Pure."""

from apps.allocation.engine.deciding import decide

__all__ = ["decide"]
