"""Agents as files: ``*.agent.yaml`` read strictly, bound to agents, written again, found by id."""
