"""Clients for the models of real providers; each implements `ModelClient`.

The module of each client is imported at its first use.
"""
