"""``perdure worker`` and ``perdure cluster``."""
