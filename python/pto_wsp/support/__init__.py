"""Small generic pieces. Imports nothing of ours."""
