"""Makes notices from the event log, and changes rules."""
