"""The cost of generating tasks where they run, compared with a list of all tasks."""
