"""Recording of the calls that a client library of a provider makes."""
