"""Tools that come with perdure: they read the working directory, and nothing else."""
