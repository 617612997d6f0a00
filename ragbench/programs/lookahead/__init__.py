"""LookaheadRAG."""
