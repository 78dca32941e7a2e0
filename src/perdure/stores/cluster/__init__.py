"""Work that several machines share: its state in a store, outside the log."""
