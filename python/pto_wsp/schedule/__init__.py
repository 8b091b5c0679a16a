"""Schedules, as users write them: policies, and the keys of tasks that some of them take."""
