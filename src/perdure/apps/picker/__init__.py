"""Choosing a session with the keyboard: matching the typed text, and the screen."""
