from .context import (
    RunContext as RunContext,
    asks_servers as asks_servers,
    build as build,
    check as check,
    choose as choose,
    compiled_fields as compiled_fields,
    compiled_sources as compiled_sources,
    limited as limited,
    lm_of as lm_of,
    ready as ready,
    same_retrieval as same_retrieval,
    stop_if_refused as stop_if_refused,
    takes_tokens as takes_tokens,
)
from .evaluation import (
    GROUP_NAMES as GROUP_NAMES,
    Evaluation as Evaluation,
    Progress as Progress,
    groupings as groupings,
    members as members,
    reopen as reopen,
    stop_lines as stop_lines,
    wanted as wanted,
)
from .runner import (
    OnPrepare as OnPrepare,
    OnRecord as OnRecord,
    OnStart as OnStart,
    ask as ask,
    evaluate as evaluate,
    run as run,
)
from .summary import (
    HEADLINE as HEADLINE,
    SUMMARY as SUMMARY,
    PolicyScores as PolicyScores,
    Summary as Summary,
    error_of as error_of,
    failed as failed,
    headline_intervals as headline_intervals,
    summarize as summarize,
    treatments as treatments,
)
