"""Tools of other programs: a client for servers of the Model Context Protocol."""
