"""Workflow documents as values, and their conversion from and to YAML.

The functions are pure. Another part of perdure, the engine, runs the documents.
"""
