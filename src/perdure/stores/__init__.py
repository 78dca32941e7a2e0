"""Where logs live: the protocol every store keeps, and the stores themselves."""
