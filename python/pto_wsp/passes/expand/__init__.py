"""The pass `expand` and its parts."""
