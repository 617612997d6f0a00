"""The config of a run: its model, the files it is read from, and the identity it resolves to."""

from ragbench.experiments.config.fields import (
    DataConfig,
    LMConfig,
    Option,
    RetrieverConfig,
    option_of,
)
from ragbench.experiments.config.files import load_config, shipped_configs
from ragbench.experiments.config.methods import CompileConfig, TuneConfig
from ragbench.experiments.config.model import (
    FLAT,
    GROUPS,
    RunConfig,
    ask_whole,
    differing,
    flatten,
    make_config,
    refreshed,
)
from ragbench.experiments.config.shipped_programs import (
    SHIPPED,
    SHIPPED_FOLDER,
    compiled_folder,
    shipped_programs,
)

__all__ = [
    "FLAT",
    "GROUPS",
    "SHIPPED",
    "SHIPPED_FOLDER",
    "CompileConfig",
    "DataConfig",
    "LMConfig",
    "Option",
    "RetrieverConfig",
    "RunConfig",
    "TuneConfig",
    "ask_whole",
    "compiled_folder",
    "differing",
    "flatten",
    "load_config",
    "make_config",
    "option_of",
    "refreshed",
    "shipped_configs",
    "shipped_programs",
]
