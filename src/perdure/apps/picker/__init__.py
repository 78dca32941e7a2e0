"""Choosing one session of many with the keyboard: what fits what is typed, and the screen."""
