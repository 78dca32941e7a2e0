"""Programs made of the parts below: the command line, and what a person has set up for it."""
