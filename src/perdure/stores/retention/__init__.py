"""What a store keeps no longer, or does not take in: erasing, retention and quotas."""
