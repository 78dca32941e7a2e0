"""The display of sessions in a terminal: text, colours, previews, trees, tables, and output."""
