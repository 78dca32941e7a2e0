"""Displays a flow: its graph, its feeds, and the questions for people."""
