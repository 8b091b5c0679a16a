"""Programs that are emitted as sources: how fast, and whether they are right."""
