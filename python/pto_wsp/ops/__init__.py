"""Ready operators: kernels, workloads and plans as plain functions."""
