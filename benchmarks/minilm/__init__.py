"""A real model: sentence embeddings with all-MiniLM-L6-v2, beside the libraries that people use for it."""
