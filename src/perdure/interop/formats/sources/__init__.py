"""Read source files of any size line by line, without loading large files into memory."""
