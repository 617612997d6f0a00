"""Workflows: fixed orders of calls around retrieval."""
