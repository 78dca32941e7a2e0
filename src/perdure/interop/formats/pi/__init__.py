"""Read pi sessions of version 1, 2 and 3, and write version 3."""
