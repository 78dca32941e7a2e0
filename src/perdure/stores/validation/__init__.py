"""What is asked of a new entry before anybody looks where it goes."""
