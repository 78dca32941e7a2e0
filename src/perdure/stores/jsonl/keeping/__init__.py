"""What the folder keeps no longer."""
