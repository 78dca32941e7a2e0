"""The command line: `main` finds the command, and reports every failure in one sentence."""
