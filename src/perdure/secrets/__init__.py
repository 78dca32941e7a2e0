"""Detect secrets, refer to secrets by name, and mask secrets."""
