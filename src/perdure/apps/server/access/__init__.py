"""Access control: tokens, and the caller to which a request belongs."""
