"""`rpmctl`, the command line."""
