"""What perdure claims about speed and size, each claim measured beside the raw driver."""
