"""The formats of sessions, a module or folder each: lines to entries and back."""
