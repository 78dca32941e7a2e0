"""Models of real providers, each behind `ModelClient`. Loaded by name, only by who uses one."""
