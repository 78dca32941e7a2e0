"""Tools of other programs: servers of the Model Context Protocol, as their client."""
