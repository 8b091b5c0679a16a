"""What costs time in a run, with the line of source, the gain at stake and the remedy."""
