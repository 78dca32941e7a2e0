"""An index of texts in parts: built once from some hundred texts, asked by words. Pure."""
