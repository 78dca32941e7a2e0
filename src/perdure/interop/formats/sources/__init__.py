"""Sources of any size, read line by line: their bytes, the outline and content of each line."""
