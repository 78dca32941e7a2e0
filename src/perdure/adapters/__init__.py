"""Adapters: the storage interfaces of agent frameworks, on a store of perdure.

Each framework has a package, installed with the extra of the same name. Adapters import only from
`perdure`.
"""
