"""The command line of perdure. `main` runs a command, and reports every failure in one sentence."""
