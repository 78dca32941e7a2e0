"""Commands about settings and agents: what counts, where it comes from, what is wrong with it."""
