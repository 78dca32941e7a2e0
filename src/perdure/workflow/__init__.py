"""Workflow documents: the value, and its YAML in both directions. Pure; the engine runs them."""
