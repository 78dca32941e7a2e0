"""The terminal chat as a program that fills the screen, made with Textual (extra ``tui``)."""
