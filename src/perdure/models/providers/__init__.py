"""Models of real providers, each behind `ModelClient`. Each module is imported on first use."""
