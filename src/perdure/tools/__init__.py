"""Tools a model may call: what a tool is, how it is declared, how it is run."""
