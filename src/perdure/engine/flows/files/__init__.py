"""The files that define a flow, parsed strictly. File contents are passed as arguments."""
