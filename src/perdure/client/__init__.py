"""The objects that users of the library work with."""
