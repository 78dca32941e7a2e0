"""The flow API for programs: begin, run, answer and watch flows."""
