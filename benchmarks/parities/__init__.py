"""The authors' side of `benchmarks/parity.py`, a module per system."""
