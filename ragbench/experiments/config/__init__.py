"""The config of a run: its model, the files it is read from, and the identity it resolves to."""

from ragbench.experiments.config.fields import (
    CompileConfig as CompileConfig,
    DataConfig as DataConfig,
    LMConfig as LMConfig,
    Option as Option,
    RetrieverConfig as RetrieverConfig,
    TuneConfig as TuneConfig,
    option_of as option_of,
)
from ragbench.experiments.config.files import (
    config_text as config_text,
    load_config as load_config,
    shipped_configs as shipped_configs,
    shipped_sweeps as shipped_sweeps,
)
from ragbench.experiments.config.identity import (
    SHIPPED as SHIPPED,
    SHIPPED_FOLDER as SHIPPED_FOLDER,
    compiled_digest as compiled_digest,
    compiled_folder as compiled_folder,
    plain_name as plain_name,
    shipped_programs as shipped_programs,
)
from ragbench.experiments.config.model import (
    FLAT as FLAT,
    GROUPS as GROUPS,
    RunConfig as RunConfig,
    ask_whole as ask_whole,
    differing as differing,
    flatten as flatten,
    make_config as make_config,
    merge as merge,
    nest as nest,
)
