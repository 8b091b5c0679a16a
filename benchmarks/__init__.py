"""Benchmarks: one folder per case, with ours and its peers. Run them with `python -m benchmarks CASE`."""
