"""Workflow documents on the command line: begun with inputs, gone on with, their outputs shown."""
