"""Read YAML strictly, as nodes with lines or as declared types; write YAML deterministically."""
