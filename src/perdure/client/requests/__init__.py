"""Follow, list and cancel the requests for turns in the log, and start their turns when due."""
