"""A context that grows with its branch: the work for one request is reused for the next."""
