"""Tools that a model can call: definition, declaration, execution."""
