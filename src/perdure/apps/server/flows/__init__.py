"""The flows of a server: their runs, and how they are shown."""
