"""Imported once by the server that the processes of `tests.kills` are forked from.

What every command would import and look up at its start is done here, so that a start is cheap.
"""

import importlib
import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "true")

import ragbench.cli.answering
import ragbench.cli.compiling
import ragbench.cli.main
import ragbench.cli.progress
import ragbench.experiments.report.scores
import ragbench.experiments.report.sweep  # noqa: F401
from ragbench.data.base import DATASETS
from ragbench.lms.factory import make_lm
from ragbench.metrics import metric_names
from ragbench.optimizers import OPTIMIZERS
from ragbench.programs import PROGRAMS
from ragbench.retrievers.base import RETRIEVERS

for _registry in (DATASETS, OPTIMIZERS, PROGRAMS, RETRIEVERS):
    _registry.names()
metric_names()
for _name in ("diskcache", "scipy.sparse", "scipy.stats"):
    importlib.import_module(_name)
make_lm("openai/fake", api_base="http://127.0.0.1:9/v1")
