"""Full text in a folder of session files: no index, every file is read."""
