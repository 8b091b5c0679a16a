"""Lowering of a workload to bytecode."""
