"""Language models behind one seam: the protocol, its streams, and the clients that speak it."""
