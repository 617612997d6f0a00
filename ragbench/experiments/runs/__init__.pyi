from .context import (
    RunContext as RunContext,
    asks_servers as asks_servers,
    build as build,
    compiled_fields as compiled_fields,
    compiled_sources as compiled_sources,
    limited as limited,
    lm_of as lm_of,
    ready as ready,
    same_retrieval as same_retrieval,
    stop_if_refused as stop_if_refused,
    takes_tokens as takes_tokens,
)
from .runner import ask as ask, evaluate as evaluate, run as run
from .summary import (
    GROUP_NAMES as GROUP_NAMES,
    HEADLINE as HEADLINE,
    SUMMARY as SUMMARY,
    Evaluation as Evaluation,
    Progress as Progress,
    Summary as Summary,
    error_of as error_of,
    failed as failed,
    headline_intervals as headline_intervals,
    members as members,
    reopen as reopen,
    stop_lines as stop_lines,
    summarize as summarize,
)
