"""Access control: tokens, and finding the caller of a request."""
