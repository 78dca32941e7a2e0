"""Outgoing HTTP: all requests of tools, and to MCP servers and embedders, use this package."""
