"""Recursive Language Models over a corpus in a sandbox."""
