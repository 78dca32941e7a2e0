"""Settings in layers: built-in, the person's file, the project's file, the environment."""
