"""The steps of a pass."""
