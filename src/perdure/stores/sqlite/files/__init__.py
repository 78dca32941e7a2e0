"""The file of a store on the disk."""
