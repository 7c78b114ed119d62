"""What would happen: passes carried out on paper, on snapshots that nobody stores."""
