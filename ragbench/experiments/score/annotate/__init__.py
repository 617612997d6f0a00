"""LM annotations of finished runs: judgments, grounding, attribution and causes."""
