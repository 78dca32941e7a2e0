"""Sessions without what nobody else may see: secrets, and paths that name a person."""
