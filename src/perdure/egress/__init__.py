"""Outgoing HTTP: every request of a tool, a server or an endpoint goes through here."""
