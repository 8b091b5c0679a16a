"""Orchestrations in C that run kernels of Python programs."""
