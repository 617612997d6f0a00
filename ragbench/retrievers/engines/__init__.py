"""Retrievers whose index an engine of somebody else's keeps: in this process, or on a server."""
