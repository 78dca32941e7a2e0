"""The one way out: every HTTP request of a tool, a server or an endpoint goes through here."""
