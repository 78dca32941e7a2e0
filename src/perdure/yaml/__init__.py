"""YAML: strict reading, as nodes with line numbers or as declared types; deterministic writing."""
