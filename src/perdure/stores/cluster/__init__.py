"""The state of work that several machines share; a store contains it outside the log."""
