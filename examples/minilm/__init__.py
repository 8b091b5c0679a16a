"""Sentence embeddings with all-MiniLM-L6-v2: a whole model as one workload on packed, ragged tokens."""
