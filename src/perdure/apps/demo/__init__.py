"""The demonstration: a recorded session in, a kill, a resume, a branch, a search; all checked."""
