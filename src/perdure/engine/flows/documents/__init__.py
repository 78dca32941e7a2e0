"""Workflow documents as flows: their graphs, prompts, and turn ends."""
