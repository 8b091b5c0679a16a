"""Programs: compiled workloads that run on arrays."""
