"""What lies on the disk: the folder, its side files, the feed, and who waits for changes."""
