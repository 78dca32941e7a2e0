"""The server: a JSON API with live events over one runtime, the web console and the chat widget."""
