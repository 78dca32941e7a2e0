"""Where scripted models come from."""
