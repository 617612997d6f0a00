"""A run on disk: one SQLite file, its writer and its reader.

`Store` writes. `RunFolder` opens a run once and reads everything from it.
"""

from ragbench.experiments.store.calls import CALLS, PREPARATION_SIDE, CallJournal
from ragbench.experiments.store.card import (
    EXPERIMENT,
    DataId,
    RunCard,
    is_run,
    repeats_in,
    runs_under,
)
from ragbench.experiments.store.database import Statement, Store
from ragbench.experiments.store.facts import (
    STORED_METRICS,
    Column,
    QuestionUsage,
    failed,
    failure_of,
    question,
    question_row,
    spending,
    stop_reason,
    varies_with,
)
from ragbench.experiments.store.files import (
    check_same,
    is_claimed,
    locked,
    read_json,
    read_object,
    write_json,
)
from ragbench.experiments.store.reader import Reader, state_of
from ragbench.experiments.store.records import StoredRecords
from ragbench.experiments.store.run_folder import (
    RunFolder,
    billed_calls,
    put_price,
    read_card,
    read_records,
)
from ragbench.experiments.store.schema import CARD, DATABASE, PREPARATION
