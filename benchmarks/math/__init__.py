"""The transcendental functions of kernels: time per element, and the largest error over the floats."""
