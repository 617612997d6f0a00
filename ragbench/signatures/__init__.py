"""Typed signatures, filed by role; their docstrings are the instructions that every program starts from.

The module a signature stands in is its role in the ledger and in `--lm-for`: answering, judging,
querying, planning, reasoning, extracting.
"""
