"""The index of BM25 and the compiled search over it."""
