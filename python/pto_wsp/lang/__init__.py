"""The Python front end: `kernel` is parsed, `workload` is traced."""
