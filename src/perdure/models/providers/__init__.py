"""Clients for the models of real providers; each implements `ModelClient`.

Each module is imported on first use.
"""
