"""A context that grows with its branch: a request reuses the work done for the request before."""
