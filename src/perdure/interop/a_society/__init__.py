"""Flows in the folders of the seeds: flow.json, and a transcript and a feed for each role."""
