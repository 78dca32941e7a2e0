"""What happens next in a flow, decided from its state alone. Pure."""
