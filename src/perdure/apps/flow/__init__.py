"""``perdure flow``: roles that hand work to each other, begun, watched and answered."""
