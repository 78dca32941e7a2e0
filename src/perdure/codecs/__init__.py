"""Codecs of the session files of pi and Operator, for importing, exporting and storing."""
