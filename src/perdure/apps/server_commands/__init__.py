"""``perdure serve`` and ``perdure token``: commands that run the application of `apps.server`."""
