from .estimate import (
    estimate_scoring as estimate_scoring,
)
from .scoring import (
    JudgeRequest as JudgeRequest,
    Scored as Scored,
    ScoreRequest as ScoreRequest,
    score_run as score_run,
)
from .stored import (
    LINES as LINES,
    SUMMARY as SUMMARY,
    digest as digest,
    judge_of as judge_of,
    scored_records as scored_records,
)
