"""Outgoing HTTP: requests of built-in tools, to MCP servers and to embedding endpoints."""
