"""Language models behind one interface: the protocol, its streams, and the clients."""
