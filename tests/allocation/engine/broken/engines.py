"""The broken engines, at least three for each law of docs/allocation.md."""

from __future__ import annotations

from tests.allocation.engine.broken import broken_plans as spoilt
from tests.allocation.engine.broken import misreadings as wrong
from tests.allocation.engine.broken.misreadings import Broken, ends, reads
from tests.allocation.engine.broken.patches import CHANGED

READING = {
    "nothing_is_exceeded": (
        wrong.forgets_the_limits_of_parents,
        wrong.forgets_the_limits_of_users,
        wrong.counts_one_member_of_a_gang,
        wrong.gives_out_broken_gpus,
        wrong.counts_no_cpu_on_nodes,
        wrong.counts_only_gpus,
        wrong.gives_out_the_capacity_of_stopping_work,
    ),
    "nobody_loses_what_is_theirs": (
        wrong.takes_what_must_not_be_preempted,
        wrong.takes_covered_work,
        wrong.forgets_how_new_work_is,
        wrong.forgets_how_often_work_was_stopped,
        wrong.stops_what_is_stopping,
    ),
    "nothing_is_wasted": (
        wrong.tries_only_the_first_pool,
        wrong.keeps_a_gpu_of_each_pool_back,
        wrong.gives_nothing_beyond_reservations,
        wrong.is_strict_with_everybody,
        wrong.counts_members_twice,
    ),
    "nobody_envies_with_reason": (
        wrong.serves_the_latest_first,
        wrong.serves_low_priority_first,
        wrong.turns_the_order_of_profiles,
        wrong.turns_the_order_of_policies,
        wrong.turns_the_order_of_pools,
    ),
    "strict_order_holds": (
        wrong.forgets_strict_order,
        wrong.orders_strictly_without_priority,
        wrong.forgets_that_gangs_wait,
    ),
    "every_victim_is_needed": (wrong.sees_a_gpu_less_than_is_free,),
    "covered_work_gets_its_claims": (
        wrong.never_preempts,
        wrong.protects_higher_priorities,
        wrong.protects_gangs,
        wrong.protects_what_just_started,
        wrong.reserves_half,
        wrong.preempts_in_the_first_pool_only,
    ),
    "a_second_pass_decides_nothing": (
        wrong.forgets_for_whom_work_stops,
        wrong.takes_stopping_work_for_running,
    ),
    "order_and_names_change_nothing": (
        wrong.ranks_policies_by_row,
        wrong.ranks_pools_by_row,
        wrong.ranks_nodes_by_row,
        wrong.ranks_runs_by_row,
    ),
    "passes_come_to_rest": (wrong.believes_that_who_waits_is_covered,),
}
ENDING = {
    "nothing_is_wasted": (spoilt.starts_one_task_a_pass,),
    "every_victim_is_needed": (
        spoilt.takes_one_more_to_be_sure,
        spoilt.stops_victims_for_nobody,
        spoilt.names_the_wrong_beneficiary,
    ),
    "a_second_pass_decides_nothing": (spoilt.starts_one_task_a_pass,),
    "passes_come_to_rest": (
        spoilt.lets_whoever_waits_take_an_equal,
        spoilt.moves_somebody_every_time,
    ),
}
BROKEN: tuple[Broken, ...] = (
    *(reads(law, reading) for law, readings in READING.items() for reading in readings),
    *(ends(law, ending) for law, endings in ENDING.items() for ending in endings),
    *CHANGED,
)
