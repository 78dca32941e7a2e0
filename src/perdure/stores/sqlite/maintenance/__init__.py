"""What is done to a file as a whole: key, schema, space, backup, repair, streams passed on."""
