"""A real model: sentence embeddings with all-MiniLM-L6-v2, compared with the usual libraries."""
