"""What is done to a database as a whole: passed on, salvaged, measured, collected, rehearsed."""
