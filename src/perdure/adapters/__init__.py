"""Adapters: the storage interfaces of agent frameworks, on a store of perdure.

A package per framework, installed by the extra of its name. Adapters import only from `perdure`.
"""
