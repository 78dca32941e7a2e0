"""What words on a command line stand for: a session, a file that was imported, a project."""
