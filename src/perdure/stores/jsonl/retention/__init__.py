"""What the folder keeps no longer, or does not take in: erasing, retention, quotas, vacuum."""
