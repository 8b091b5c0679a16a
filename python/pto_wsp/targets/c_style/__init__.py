"""Kernels as functions of a C-like language: the plan of loops, checks, extents, windows and control flow.

A target adds a `Spelling`, which says how its language writes types and values, and a `KernelWriter`, which
writes tiles and instructions.
"""
