"""What the IR means: numpy kernels, and a sequential walk over the tasks of a workload."""
