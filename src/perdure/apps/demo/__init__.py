"""The demonstration: a recorded session in, a kill, a resume, a branch; every claim is checked."""
