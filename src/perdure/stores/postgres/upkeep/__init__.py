"""What is done to a database as a whole: streams passed on as they are."""
