"""Devices as data: cores, memories, rates and latencies of machines, and what instructions cost on them."""
