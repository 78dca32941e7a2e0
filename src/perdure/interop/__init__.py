"""Imports and exports of sessions, in perdure's own format and in those of other programs."""
