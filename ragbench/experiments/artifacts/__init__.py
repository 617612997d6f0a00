"""Compiled programs on disk."""

from ragbench.experiments.artifacts.artifact import (
    FORMAT as FORMAT,
    PROGRAM as PROGRAM,
    SIDECAR as SIDECAR,
    Sidecar as Sidecar,
    cards_of as cards_of,
    load_artefact as load_artefact,
    read_sidecar as read_sidecar,
    save_program as save_program,
    versions as versions,
    write_sidecar as write_sidecar,
)
from ragbench.experiments.artifacts.held_out import (
    DataCard as DataCard,
    Questions as Questions,
    assert_held_out as assert_held_out,
    assert_not_learned_from as assert_not_learned_from,
    data_card as data_card,
    question_hash as question_hash,
    read_policy as read_policy,
    warn_of_shared_passages as warn_of_shared_passages,
    write_policy as write_policy,
)
