"""The interpreter as a target: kernels run in numpy."""
