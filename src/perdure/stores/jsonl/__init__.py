"""Store sessions as files of JSON lines, in the layout and format of other agents."""
