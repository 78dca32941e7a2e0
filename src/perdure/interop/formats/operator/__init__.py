"""Read and write Operator's session files."""
