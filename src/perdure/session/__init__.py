"""Sessions as values: entries, messages, tree, fold, codec. Pure: no clock, no disk, no loop."""
