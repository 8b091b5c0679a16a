"""Ready operators: kernels, workloads and plans behind a plain function call."""
