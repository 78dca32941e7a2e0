"""``perdure sessions search``: the command, and hits as text and as JSON."""
