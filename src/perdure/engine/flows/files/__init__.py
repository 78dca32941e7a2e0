"""The files that define a flow, parsed strictly."""
