"""How much work is done on what comes from outside: limits, and files read within them."""
