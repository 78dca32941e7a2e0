"""``perdure serve`` and ``perdure token``."""
