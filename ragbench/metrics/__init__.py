"""Scores as pure functions of records, their registry, and the statistics of comparing runs."""

from ragbench.metrics import drop as drop, efficiency as efficiency
from ragbench.metrics.aggregate import (
    BREAKDOWN_METRICS as BREAKDOWN_METRICS,
    DEFAULT_METRICS as DEFAULT_METRICS,
    GROUPINGS as GROUPINGS,
    Grouping as Grouping,
    cluster_of as cluster_of,
    score_columns as score_columns,
    summarize as summarize,
    usable_clusters as usable_clusters,
)
from ragbench.metrics.answer import (
    best as best,
    contains as contains,
    exact_match as exact_match,
    is_blank_answer as is_blank_answer,
    token_f1 as token_f1,
)
from ragbench.metrics.base import (
    METRICS as METRICS,
    Metric as Metric,
    get_metric as get_metric,
    metric_names as metric_names,
)
from ragbench.metrics.errors import UNDECIDED as UNDECIDED, Cause as Cause, cause_of as cause_of
from ragbench.metrics.judged import (
    ASKED as ASKED,
    GROUNDED as GROUNDED,
    JUDGED as JUDGED,
    SCORES_OF_TYPE as SCORES_OF_TYPE,
    answer_correctness as answer_correctness,
    claims_of_answer as claims_of_answer,
    claims_of_chain as claims_of_chain,
    says_something as says_something,
    share as share,
    statement_f1 as statement_f1,
)
from ragbench.metrics.retrieval import (
    all_recall as all_recall,
    ndcg as ndcg,
    recall as recall,
    reciprocal_rank as reciprocal_rank,
    union as union,
)
from ragbench.metrics.stats.comparison import (
    LEAST_PILOT as LEAST_PILOT,
    Comparison as Comparison,
    Method as Method,
    compare_scores as compare_scores,
    correct as correct,
)
from ragbench.metrics.stats.corrections import Best as Best, corrected_best as corrected_best
from ragbench.metrics.stats.estimates import (
    LEAST_SEEDS as LEAST_SEEDS,
    Interval as Interval,
    estimate_mean as estimate_mean,
    mean_interval as mean_interval,
    paired_interval as paired_interval,
)
from ragbench.metrics.support import (
    evidence_kind as evidence_kind,
    gold_triples as gold_triples,
    support_kind as support_kind,
)
from ragbench.metrics.text import (
    is_refusal as is_refusal,
    normalise_answer as normalise_answer,
    tokens as tokens,
)
