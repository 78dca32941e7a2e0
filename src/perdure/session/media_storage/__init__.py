"""From what is in flight to what a log can hold."""
