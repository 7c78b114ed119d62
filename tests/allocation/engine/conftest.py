"""How many cases the engine's laws are tried on: some here, many with `make properties`."""

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "engine",
    max_examples=200,
    deadline=None,
    suppress_health_check=SLOW,
    # The same cases every time: a law that fails here was broken by the change at hand.
    derandomize=True,
)
settings.register_profile(
    "properties", max_examples=8_500, deadline=None, suppress_health_check=SLOW
)
if settings.get_current_profile_name() == "suite":
    settings.load_profile("engine")
