"""Find sessions, flows, questions and entries by id or file, and the files of a store."""
