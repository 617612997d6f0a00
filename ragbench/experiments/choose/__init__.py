"""Races of programs over one stream of questions, which spend only what the decision needs."""
