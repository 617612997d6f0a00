"""Experiments of several runs: sweeps, verdicts, choices and searches over cells."""
