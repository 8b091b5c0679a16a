"""What directives of schedules cost and gain."""
