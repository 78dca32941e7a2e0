"""Tools that a model may call: definition, declaration, execution."""
