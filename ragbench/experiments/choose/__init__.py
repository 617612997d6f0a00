"""Races of programs over one stream of questions, which stop when the choice is decided."""
