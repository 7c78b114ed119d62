"""What the demonstration consists of: pools, profiles, teams with their people, names of tasks."""

from typing import Final

from apps.policies.document import Link, PoolEntry, ProfileEntry

# The label of its nodes; another value than `ACTIVE` stops its new tasks.
MARK: Final = "demonstration"
ACTIVE, PAUSED = "yes", "paused"
TAG: Final = "demonstration"
H100: Final = "H100 Half a Superpod"
BARE_METAL: Final = "Bare Metal Low END GPUs"
POOLS: Final = (
    PoolEntry(
        name=H100,
        description="Simulated. Large training runs and evaluations.",
        capacity={"gpu": "8"},
        profiles=("2xGPU", "4xGPU", "8xGPU", "0.5xGPU"),
    ),
    PoolEntry(
        name=BARE_METAL,
        description="Simulated. Older cards for everyday work.",
        capacity={"gpu": "8"},
        profiles=("4xGPU",),
    ),
)
# Of a GPU and hour.
PRICES: Final = {H100: "3.20", BARE_METAL: "0.90"}
PROFILES: Final = (
    ProfileEntry(name="2xGPU", request={"gpu": "2"}, pools=(Link(pool=H100, name="2 GPU H100"),)),
    ProfileEntry(
        name="4xGPU",
        request={"gpu": "4"},
        pools=(
            Link(pool=BARE_METAL, name="4 GPU Low End"),
            Link(pool=H100, name="4 GPU H100 link"),
        ),
    ),
    ProfileEntry(name="8xGPU", request={"gpu": "8"}, pools=(Link(pool=H100, name="8 GPU H100"),)),
    ProfileEntry(
        name="0.5xGPU", request={"gpu": "0.5"}, pools=(Link(pool=H100, name="Half a GPU"),)
    ),
)
# Thousandths of a GPU.
GPU: Final = {"0.5xGPU": 500, "2xGPU": 2000, "4xGPU": 4000, "8xGPU": 8000}
DEV, RESEARCH = "Dev", "Research"
TEAMS: Final = (DEV, RESEARCH)
GROUPS: Final = {team: f"demo-{team.lower()}" for team in TEAMS}
ADMIN: Final = "demo-admin"
# The first one of each team gets a password, the others cannot sign in.
PEOPLE: Final = {
    DEV: ("demo-dev", "demo-lena", "demo-omar"),
    RESEARCH: ("demo-research", "demo-priya", "demo-tomas", "demo-yuki"),
}
USERNAMES: Final = (ADMIN, *PEOPLE[DEV], *PEOPLE[RESEARCH])
# A task that holds GPUs and uses none.
NOTEBOOK: Final = "notebook"
TASK_NAMES: Final = {
    DEV: ("tokenizer-sweep", "quantize-13b", "eval-checkpoint", "export-onnx", "load-test"),
    RESEARCH: (
        "reward-model-7b",
        "sft-instruct",
        "longcontext-yarn",
        "dpo-helpfulness",
        "ablation",
    ),
}
