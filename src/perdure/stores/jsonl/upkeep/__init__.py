"""What is done to a folder of session files as a whole: streams passed on as they are."""
