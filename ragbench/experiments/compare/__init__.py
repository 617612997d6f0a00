"""Comparisons between runs: paired, and verdicts."""
