"""The `pto` command."""
