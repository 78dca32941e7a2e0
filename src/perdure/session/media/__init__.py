"""Media: in flight as bytes, in a log as a handle by content, and the way from one to the other."""
