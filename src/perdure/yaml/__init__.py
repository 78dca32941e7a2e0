"""YAML: read strictly, as nodes with line numbers or as declared types; write deterministically."""
