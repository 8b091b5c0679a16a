"""What it costs that data decide: conditions, empty rows, ragged rows; and three operators made of them."""
