"""Imported by the server of `tests.disk.server`: what some commands import when they are at it.

Of a run that makes a tree of summaries, nine tenths of the time went into that.
"""

import importlib

import tests.warm  # noqa: F401

for _name in (
    "igraph", "optuna", "sklearn.mixture", "ragbench.cli.searching",
    "ragbench.cli.compiling", "ragbench.experiments.compare", "ragbench.experiments.report.verdict",
):  # fmt: skip
    importlib.import_module(_name)
