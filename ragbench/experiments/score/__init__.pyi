from .estimate import (
    estimate_scoring as estimate_scoring,
)
from .lines import (
    is_of_batch as is_of_batch,
    wrong_with_reply as wrong_with_reply,
    wrong_with_scores as wrong_with_scores,
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
