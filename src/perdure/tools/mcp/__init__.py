"""Tools of other programs, used through a client for servers of the Model Context Protocol."""
