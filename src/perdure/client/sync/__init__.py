"""The same library without async: thin handles, and one event loop on a thread of its own."""
