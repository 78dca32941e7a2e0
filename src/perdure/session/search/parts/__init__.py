"""A text index in parts: each part is built once from many texts and queried by word.

Pure.
"""
