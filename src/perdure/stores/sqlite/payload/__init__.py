"""Prepare data for the file: encrypt pages, compress large contents, seal commits."""
