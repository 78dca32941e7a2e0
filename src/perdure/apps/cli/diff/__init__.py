"""``perdure sessions diff``: what two branches share, where they part, and what each has."""
