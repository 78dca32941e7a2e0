"""The same library without async: one event loop on a thread of its own, thin handles in front."""
