"""Recording of the calls that a program makes with a provider's client library."""
