"""What changes while one pass decides, and what passes share."""
