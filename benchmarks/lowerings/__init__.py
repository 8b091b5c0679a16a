"""What a program costs before it runs: proofs for all sizes."""
