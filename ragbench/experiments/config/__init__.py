"""The config of a run: its model, the files it is read from, and the identity it resolves to."""

from ragbench.experiments.config.fields import (
    CompileConfig,
    DataConfig,
    LMConfig,
    Option,
    RetrieverConfig,
    TuneConfig,
    option_of,
)
from ragbench.experiments.config.files import (
    config_text,
    load_config,
    shipped_configs,
    shipped_sweeps,
)
from ragbench.experiments.config.identity import (
    SHIPPED,
    SHIPPED_FOLDER,
    compiled_digest,
    compiled_folder,
    plain_name,
    shipped_programs,
)
from ragbench.experiments.config.model import (
    SOURCES,
    RunConfig,
    ask_whole,
    check_names,
    differing,
    leaves_of,
    make_config,
    merge,
    with_k,
)
