"""A text index in parts: each part is built once from some hundred texts and queried by word.

Pure.
"""
