"""What the database keeps no longer."""
