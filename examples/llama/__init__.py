"""A decoder layer of LLaMA as one workload."""
