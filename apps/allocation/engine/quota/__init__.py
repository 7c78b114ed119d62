"""What policies use: tiers, limits, shares, and capacity that is held for a reservation."""
