"""Define tools that a model can call, declare them to the model, and run them."""
