"""A-RAG."""
