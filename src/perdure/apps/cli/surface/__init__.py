"""The commands as values: their names, parameters, help and completion."""
