"""What is made ready for the file: pages encrypted, large contents compressed, commits sealed."""
