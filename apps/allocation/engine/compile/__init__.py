"""The snapshot with everything looked up once, by index."""
