"""How content lies in the file: pages encrypted, large contents compressed."""
