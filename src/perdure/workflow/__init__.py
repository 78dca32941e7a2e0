"""Workflow documents: as values, and conversion from and to YAML.

The functions are pure; the engine runs the documents.
"""
