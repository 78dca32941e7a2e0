"""The state of work that several machines share; a store keeps this state outside the log."""
