"""A run on disk: one SQLite file, what is written to it, and what is read of it.

`Store` writes. `read_records` and `read_card` read: a run's records by question, and what was run.
"""

from ragbench.experiments.store.database import (
    CARD as CARD,
    DATABASE as DATABASE,
    PREPARATION as PREPARATION,
    DataId as DataId,
    Reader as Reader,
    RunCard as RunCard,
    Store as Store,
    is_run as is_run,
    read_card as read_card,
    runs_under as runs_under,
    state_of as state_of,
    text_id as text_id,
)
from ragbench.experiments.store.files import (
    check_output as check_output,
    check_same as check_same,
    is_claimed as is_claimed,
    locked as locked,
    read_json as read_json,
    read_object as read_object,
    write_json as write_json,
    write_whole as write_whole,
)
from ragbench.experiments.store.records import (
    CALLS as CALLS,
    PREPARATION_SIDE as PREPARATION_SIDE,
    CallJournal as CallJournal,
    StoredRecords as StoredRecords,
    billed_calls as billed_calls,
    lost_calls as lost_calls,
    preparation_calls as preparation_calls,
    read_records as read_records,
    read_replies as read_replies,
    read_scores as read_scores,
    read_texts as read_texts,
)
