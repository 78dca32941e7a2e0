"""Flows: roles that hand work to each other.

The modules in ``rules`` decide, and the runner executes the decisions.
"""
