"""Read and write exports of opencode."""
