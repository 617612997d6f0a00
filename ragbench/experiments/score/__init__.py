"""Scores of finished runs."""
