"""A context that grows with its branch: one request reuses the work done for the previous one."""
