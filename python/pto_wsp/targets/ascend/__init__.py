"""The targets `ascend_a2a3` and `ascend_a5`: kernels as PTO tile calls."""
