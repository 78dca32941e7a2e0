"""Settings in layers: built-in values, the user's file, the project's file, the environment."""
