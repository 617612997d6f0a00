"""REAP."""
