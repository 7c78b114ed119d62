"""Hypothesis strategies for configuration documents, as people would send them."""

from typing import Any

from hypothesis import strategies as st

NAMES = ["H100", "Bare Metal", "cloud", "ä pool", "x"]
SIZES = ["1xGPU", "4xGPU", "half", "gang"]
AMOUNTS = [1, 4, "0.5", 8, "1/7", 0.25]

settings = st.fixed_dictionaries(
    {},
    optional={
        "queueing": st.sampled_from(["best_effort", "strict"]),
        "over_quota": st.sampled_from(["priority", "fair_share"]),
        "preemption": st.sampled_from(["none", "reclaim", "priority", "rank"]),
        "consolidation": st.booleans(),
    },
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document without errors: each profile asks for something and links a pool that has it."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    sizes = draw(st.lists(st.sampled_from(SIZES), unique=True))
    profiles = [_profile(draw, size, names) for size in sizes]
    pools = [
        {
            "name": name,
            "description": draw(st.sampled_from(["", "In the cellar.\nBehind the door."])),
            "capacity": {"gpu": 64, "license": draw(st.integers(0, 5))},
            "backfill": draw(st.booleans()),
            "preemption": draw(st.sampled_from(["", "none", "reclaim", "priority", "rank"])),
            "allowed_images": draw(
                st.sampled_from([[], ["*"], ["reg.example.org:5000/a/*", "b:1"]])
            ),
            "profiles": draw(
                st.permutations(
                    [p["name"] for p in profiles if name in [k["pool"] for k in p["pools"]]]
                )
            ),
        }
        for name in names
    ]
    return {"settings": draw(settings), "pools": pools, "profiles": profiles}


def _profile(draw: st.DrawFn, name: str, pools: list[str]) -> dict[str, Any]:
    linked = draw(st.lists(st.sampled_from(pools), min_size=1, unique=True))
    return {
        "name": name,
        "request": draw(st.sampled_from(AMOUNTS)),
        "replicas": draw(st.integers(1, 4)),
        "shm_mb": draw(st.none() | st.integers(0, 1024)),
        "read_only_root": draw(st.booleans()),
        "allow_streams": draw(st.booleans()),
        "extra_permissions": draw(
            st.sampled_from(
                [[], ["root"], ["capability:IPC_LOCK", "device:/dev/infiniband/rdma_cm"]]
            )
        ),
        "device_models": draw(st.lists(st.sampled_from(["H100", "T4"]), unique=True)),
        "pools": [{"pool": pool, "name": f"link {pool}"} for pool in linked],
    }
