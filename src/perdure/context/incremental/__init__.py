"""A context that grows with its branch: what one request was made of is kept for the next."""
