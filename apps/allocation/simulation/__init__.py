"""One simulated state, which replays, forecasts and previews carry plans out on; pure."""
