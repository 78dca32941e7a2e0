"""Programs made of the parts below; the only place that reads the environment."""
