"""Many tasks: arrays of 10,000, the list among 1,000,000, and the command line that shows it."""

from dataclasses import dataclass

from tests.bench.installation import result_of


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians in milliseconds, of which `..._cpu_ms` are of the processor.

    Args:
        array_ms, insert_ms: the request for an array, and one INSERT and COMMIT of its row.
        page_ms, next_ms, html_ms: the first 50 tasks by REST, the next 50, and the page of them.
        abort_ms, abort_cpu_ms: bulk actions that abort as many tasks; of the server, without the
            database.
        without_ms, with_ms: a pass without an array that waits, and with one.
        list_cpu_ms, bare_cpu_ms: `rpmctl list` of 50 tasks, and a Python that does nothing.
    """

    tasks: int
    array_ms: float
    insert_ms: float
    page_ms: float
    next_ms: float
    html_ms: float
    aborted: int
    abort_ms: float
    abort_cpu_ms: float
    without_ms: float
    with_ms: float
    list_cpu_ms: float
    bare_cpu_ms: float


def measure() -> Figure:
    """All of it, in one installation."""
    return Figure(**result_of("tests.bench.tasks_installation"))
