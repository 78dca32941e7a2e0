"""Starts and resumes workflow documents on the command line, and prints their outputs."""
