"""Imports and exports of sessions, in perdure's own format and in formats of other programs."""
