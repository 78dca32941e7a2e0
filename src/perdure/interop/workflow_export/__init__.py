"""A session as a workflow: a linear chain of its turns, with the whole transcript attached."""
