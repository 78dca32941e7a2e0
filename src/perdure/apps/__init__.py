"""Programs built from the packages below: the command line and its user configuration."""
