"""Branch to model request: what a model is sent, and what is summarised. Pure."""
