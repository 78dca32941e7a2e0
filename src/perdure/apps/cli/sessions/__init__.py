"""``perdure sessions``: list, show, search and change sessions."""
