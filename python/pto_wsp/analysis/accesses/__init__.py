"""Which elements the tasks of a workload touch, as formulas over integers, and which tasks conflict."""
