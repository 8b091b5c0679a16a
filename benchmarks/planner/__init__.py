"""The case `planner`: chunk size search and descriptor generation."""
