"""The formats of session files.

One module or folder per format converts lines to entries and back.
"""
