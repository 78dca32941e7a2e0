"""Import and export flows as folders of A-Society: flow.json, a transcript and a feed per role."""
