"""The rules of the turn machine for each input; they have no side effects."""
