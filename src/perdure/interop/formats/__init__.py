"""The formats of session files, a module or folder each: they convert lines to entries and back."""
