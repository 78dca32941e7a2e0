"""Implements the storage interfaces of agent frameworks with a perdure store.

Each framework has a package here; the extra of the same name installs the framework. Adapters
import only from `perdure`.
"""
