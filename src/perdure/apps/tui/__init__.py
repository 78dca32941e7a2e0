"""The terminal chat as a full-screen program, based on Textual (extra ``tui``)."""
