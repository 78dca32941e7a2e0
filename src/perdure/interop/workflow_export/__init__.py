"""Export a session as a workflow: a linear chain of its turns, and the whole transcript."""
