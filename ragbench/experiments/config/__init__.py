"""The config of a run: its model, the files it is read from, and the identity it resolves to."""

from ragbench.experiments.config.fields import CompileConfig, TuneConfig
from ragbench.experiments.config.files import (
    config_text,
    load_config,
    shipped_configs,
    shipped_sweeps,
)
from ragbench.experiments.config.identity import (
    candidate_folder,
    compiled_digest,
    compiled_folder,
    file_within,
    plain_name,
    server_of,
)
from ragbench.experiments.config.model import (
    CHOSEN,
    SOURCES,
    RunConfig,
    ask_whole,
    check_names,
    check_one_run,
    differing,
    leaves_of,
    make_config,
    merge,
    with_k,
)
from ragbench.experiments.config.names import Fields
from ragbench.experiments.config.provenance import MAY_SET, check_stored_knobs
