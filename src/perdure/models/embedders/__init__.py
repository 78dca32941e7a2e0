"""Embedders convert texts to vectors, so that recall also finds texts with other words."""
