"""Small histories for tests."""

from hypothesis import strategies as st

from apps.allocation.replay.trace import TraceTask


def task(number: int, submitted: int, duration: int, gpus: int = 1, team: str = "a") -> TraceTask:
    return TraceTask(number, submitted, duration, gpus * 1000, team)


@st.composite
def histories(draw: st.DrawFn, *, most: int = 24) -> tuple[TraceTask, ...]:
    """Jobs of up to three teams that crowd a pool of eight GPUs."""
    tasks = draw(
        st.lists(
            st.tuples(
                st.integers(-5, 60),
                st.integers(0, 40),
                st.sampled_from((1, 1, 2, 3, 4, 8)),
                st.sampled_from("abc"),
            ),
            min_size=1,
            max_size=most,
        )
    )
    return tuple(task(number, *one) for number, one in enumerate(sorted(tasks), start=1))
