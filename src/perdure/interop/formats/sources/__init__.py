"""Sources of any size, read line by line: their bytes, what is known of each line, what it says."""
