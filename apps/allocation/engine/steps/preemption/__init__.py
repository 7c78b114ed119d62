"""The step in which running work stops, or moves, for tasks that do not fit."""
