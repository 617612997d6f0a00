from .call_log import (
    PREPARATION_CALLS as PREPARATION_CALLS,
    SENT as SENT,
    STRICT as STRICT,
    CallLine as CallLine,
    SentCalls as SentCalls,
    first_fault as first_fault,
    lost_calls as lost_calls,
    recorded_calls as recorded_calls,
    settle as settle,
    wrong_with_sent as wrong_with_sent,
)
from .card import (
    CONFIG as CONFIG,
    DataId as DataId,
    Preparation as Preparation,
    RunCard as RunCard,
    read_card as read_card,
)
from .compile_log import (
    CALLS as CALLS,
    PREPARATION as PREPARATION,
    CallJournal as CallJournal,
    read_calls as read_calls,
)
from .failures import (
    classify as classify,
)
from .files import (
    as_json as as_json,
    check_output as check_output,
    read_json as read_json,
    read_object as read_object,
    write_json as write_json,
    write_whole as write_whole,
)
from .folder import (
    held as held,
    is_claimed as is_claimed,
    locked as locked,
)
from .jsonl import (
    RECORDS as RECORDS,
    Line as Line,
    Parse as Parse,
    decode as decode,
    encode as encode,
    parse_line as parse_line,
    read_each as read_each,
    read_lines as read_lines,
    unseal as unseal,
    usable as usable,
)
from .jsonl_repair import (
    write_without as write_without,
)
from .prompts import (
    PROMPTS as PROMPTS,
    PromptLog as PromptLog,
    parse_prompt as parse_prompt,
    read_prompts as read_prompts,
)
from .record_writer import (
    RecordWriter as RecordWriter,
)
from .stored import (
    Loaded as Loaded,
    StoredRecords as StoredRecords,
    read_finished as read_finished,
    read_records as read_records,
    tell_corrupt as tell_corrupt,
)
