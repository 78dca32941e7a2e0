"""One module per session format: lines to entries and back."""
