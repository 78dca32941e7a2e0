"""Agents that have other agents work for them, each piece of work in a session of its own."""
