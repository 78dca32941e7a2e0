"""Work that several machines share: what a store keeps of it beside the log."""
