"""Full text in a folder of session files: by an index beside them; without one, by reading them."""
