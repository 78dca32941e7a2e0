"""perdure without async: thin handles, and one event loop that runs on its own thread."""
