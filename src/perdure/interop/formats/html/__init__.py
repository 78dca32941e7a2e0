"""Write a session as one self-contained HTML page."""
