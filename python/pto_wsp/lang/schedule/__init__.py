"""Schedules, as users write them: files of directives, keys of tasks, and the table of conflicts."""
