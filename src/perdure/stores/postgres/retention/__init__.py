"""What the database keeps no longer, or does not take in: erasing, retention, quotas."""
