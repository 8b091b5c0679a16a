"""Schedule operators: other loops and tasks with the same results, or a refusal that names the conflict."""
