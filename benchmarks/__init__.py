"""Benchmarks: one folder per case, ours beside its peers. Run them with `python -m benchmarks CASE`."""
