"""Proofs about workloads for all sizes. Needs islpy (the extra `[prove]`)."""
