"""Simulated time: speed of the simulator, published cycles, and what the specifications claim."""
