"""Flows in the folders of A-Society: flow.json, and a transcript and a feed for each role."""
