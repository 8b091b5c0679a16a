"""Importing torch takes longer than many quick tests together."""

from tests.slow import RUNS_QUICK

collect_ignore_glob = ["test_*.py"] if RUNS_QUICK else []
