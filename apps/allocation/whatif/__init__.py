"""What would happen: passes carried out on snapshots that are not stored."""
