"""Implements the storage interfaces of agent frameworks with a perdure store.

Each framework has a package, installed with the extra of the same name. Adapters import only from
`perdure`.
"""
