"""All commands as data: their names, parameters, help and completion."""
