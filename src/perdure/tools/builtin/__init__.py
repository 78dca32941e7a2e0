"""Tools that come with perdure: files, programs, git, requests, the desktop, other agents."""
