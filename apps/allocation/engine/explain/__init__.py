"""Why the tasks that are left wait."""
