"""What is done to a store as a whole: another key, another schema, space given back."""
