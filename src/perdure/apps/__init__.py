"""Programs built from the other packages: the command line and its user configuration."""
