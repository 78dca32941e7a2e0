"""The rules of the machine for each input; pure."""
