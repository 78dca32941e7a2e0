"""Flows: roles that hand work to each other. ``rules`` decide, the runner acts."""
