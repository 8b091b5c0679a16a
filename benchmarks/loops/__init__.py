"""Kernels beside the same loops in plain C++."""
