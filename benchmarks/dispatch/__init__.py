"""What it takes to make tasks where they run, beside a list of all of them."""
