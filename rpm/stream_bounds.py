"""Bounds of streams into running tasks."""

from rpm.bound import Bound

_STREAMS = "end_to_end/test_streams.py"
_MOST = f"{_STREAMS}::test_a_stream_that_nobody_asks_for_properly_is_refused"
_MINUTE = f"{_STREAMS}::test_a_person_takes_neither_all_places_of_a_node_nor_opens_without_end"

STREAM_BOUNDS = (
    *(
        Bound(scope, what, f"apps.dashboard.stream_socket:MOST_{name}", _MOST)
        for scope, what, name in (
            ("person", "streams into running tasks", "OF_PERSON"),
            ("person", "streams to one node", "OF_PERSON_ON_NODE"),
            ("task", "streams into it", "OF_TASK"),
            ("node", "streams to it", "OF_NODE"),
            ("server", "streams of a process", "STREAMS"),
        )
    ),
    Bound(
        "person",
        "streams that they open in a minute",
        "apps.accounts.services.throttling:STREAMS_A_MINUTE",
        _MINUTE,
    ),
)
