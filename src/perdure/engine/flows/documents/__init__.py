"""Workflow documents run as flows: mapped onto a graph of roles, told and settled in their way."""
