"""Distribution of tests to the processes of a parallel run."""

from xdist.scheduler.loadscope import LoadScopeScheduling

# Long tests each by itself, then folders and modules whose tests share what is costly to start,
# such as an installation and a browser to look at it, or would meet at one port of the machine's
# own network. The first that fits a test counts.
SHARED = (
    "tests/browser/test_accessibility.py::test_no_page_breaks_wcag_or_scrolls_sideways[even]",
    "tests/browser/test_accessibility.py::test_no_page_breaks_wcag_or_scrolls_sideways[odd]",
    "tests/browser/editor/",
    "tests/browser/",
    "tests/end_to_end/test_gangs.py",
    "tests/execution/crashes/test_crashes.py",
    "tests/rpm/backups/test_commands.py",
)


class SharedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests one by one to idle processes, but those of a shared folder all to one process.

    xdist's own groups are marks that it writes into the tests' ids, which pytest 9.2 refuses.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((one for one in SHARED if nodeid.startswith(one)), nodeid)
