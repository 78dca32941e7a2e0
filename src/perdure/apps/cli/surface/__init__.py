"""The commands as values: what they are called and take, their help, and their completion."""
