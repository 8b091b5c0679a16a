"""The cost of a task (ordering, waiting, running), compared with other task runtimes."""
