"""Who may do what: tokens, and the caller that a request belongs to."""
