"""The command line: `main` finds the command, and every failure ends there in one sentence."""
