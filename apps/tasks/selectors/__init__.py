"""Reads of tasks; every list that a user can see starts here."""
