"""YAML: read strictly, as nodes that know their lines or as declared types; written one way."""
