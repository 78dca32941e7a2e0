"""What the machine does with each input; pure."""
