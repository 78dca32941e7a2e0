"""The server: a JSON API with live events over one runtime, the console and the chat widget."""
