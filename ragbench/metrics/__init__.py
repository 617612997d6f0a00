"""Metrics as pure functions of records, their registry, and statistics of comparisons."""

from ragbench.metrics import abstention as abstention, drop, efficiency
from ragbench.metrics.aggregate import (
    DEFAULT_METRICS,
    GROUPINGS,
    Mean,
    mean_of,
    score_columns,
    summarize,
)
from ragbench.metrics.answer import best, contains, exact_match, is_blank_answer, token_f1
from ragbench.metrics.base import METRICS, Metric, get_metric, metric_names
from ragbench.metrics.errors import UNDECIDED, Cause, cause_of
from ragbench.metrics.judged import (
    ASKED,
    GROUNDED,
    JUDGED,
    SCORES_OF_TYPE,
    answer_correctness,
    claims_of_answer,
    claims_of_chain,
    says_something,
    share,
    statement_f1,
)
from ragbench.metrics.retrieval import all_recall, ndcg, recall, reciprocal_rank, union
from ragbench.metrics.stats.comparison import (
    Method,
    compare_scores,
    correct,
    holm,
    with_extremes,
    without_interval,
)
from ragbench.metrics.stats.estimates import (
    FEW_CLUSTERS,
    LEAST_SEEDS,
    THESE_DOCUMENTS,
    THESE_QUESTIONS,
    Bounds,
    Interval,
    estimate_difference,
    estimate_mean,
    mean_interval,
    p_seeds_alike,
    paired_interval,
)
from ragbench.metrics.stats.power import ALPHA
from ragbench.metrics.stats.repeats import Repeated, repeated, repeats_differ
from ragbench.metrics.stats.selection import Best, corrected_best
from ragbench.metrics.stats.verdict import LEAST_PILOT, Comparison, Outcome
from ragbench.metrics.support import evidence_kind, gold_triples, support_kind
from ragbench.metrics.text import is_refusal, normalise_answer, tokens
