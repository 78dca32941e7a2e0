"""Commands for what a store keeps no longer, or does not take in."""
