"""Read-only facts about IR: what passes and targets decide by."""
