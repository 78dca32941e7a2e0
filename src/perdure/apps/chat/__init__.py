"""Chat in a session from the command line: line by line, or one turn."""
