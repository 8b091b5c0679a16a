"""Measures the machine that runs this: the figures of the device `host`, and the peaks of benchmarks."""
