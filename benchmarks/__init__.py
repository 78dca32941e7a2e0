"""The claims of perdure about speed and size, each measured and compared with the raw driver."""
