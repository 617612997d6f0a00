"""A run on disk: one SQLite file, what is written to it, and what is read of it.

`Store` writes. `read_records` and `read_card` read: a run's records by question, and what was run.
"""

from ragbench.experiments.store.card import DataId, RunCard, is_run, read_card, runs_under
from ragbench.experiments.store.database import (
    CARD,
    DATABASE,
    PREPARATION,
    Reader,
    Store,
    state_of,
    text_id,
)
from ragbench.experiments.store.files import (
    check_output,
    check_same,
    is_claimed,
    locked,
    read_json,
    read_object,
    write_json,
    write_whole,
)
from ragbench.experiments.store.records import (
    CALLS,
    PREPARATION_SIDE,
    CallJournal,
    StoredRecords,
    billed_calls,
    lost_calls,
    preparation_calls,
    read_records,
    read_replies,
    read_scores,
    read_texts,
)
