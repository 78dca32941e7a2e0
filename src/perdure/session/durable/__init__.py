"""From what is in flight to what a log can hold, and what it takes as that."""
