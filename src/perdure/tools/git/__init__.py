"""Git in repositories whose configuration is not trusted."""
