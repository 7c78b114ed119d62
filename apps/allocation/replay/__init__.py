"""A history of jobs, decided again by the engine: docs/replay.md. Needs no database."""
