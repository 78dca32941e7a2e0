"""How sessions look in a terminal: text, colours, previews, trees, tables, and the way out."""
