"""Kernels compared with the same loops in plain C++."""
