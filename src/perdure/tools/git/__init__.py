"""Git in repositories that somebody else may have configured."""
