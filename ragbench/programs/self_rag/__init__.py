"""Self-RAG."""
