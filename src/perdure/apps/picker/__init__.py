"""The choice of a session with the keyboard: the matching of typed text, and the screen."""
