"""What is done to a folder as a whole: streams passed on, salvaged, measured; its index checked."""
