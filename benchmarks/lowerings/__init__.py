"""What a program costs before it runs: lowerings, and proofs for all sizes."""
