"""``perdure flow``: start, watch and answer flows, in which roles hand work to each other."""
