"""Workflow documents: the value, its YAML in both directions. Pure; running one is the engine's."""
