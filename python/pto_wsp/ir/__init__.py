"""The one intermediate representation: kernels, workloads, scalar expressions, modules."""
