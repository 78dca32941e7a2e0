"""What is declared of a function or a value, held against what it is given."""
