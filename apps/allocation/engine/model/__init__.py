"""What goes into a pass and what comes out of it, as plain frozen data."""
