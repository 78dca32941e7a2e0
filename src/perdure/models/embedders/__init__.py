"""Embedders: texts become vectors, so that a recall also finds what is said in other words."""
