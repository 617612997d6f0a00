"""Multi-hop retrieval-augmented generation, measured honestly. Importing this does no work."""

__version__ = "0.1.0"
