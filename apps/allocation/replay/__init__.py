"""A history of jobs, decided anew by the engine: docs/replay.md. Needs no database."""
