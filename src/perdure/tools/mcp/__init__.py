"""Use tools of other programs, through a client for servers of the Model Context Protocol."""
