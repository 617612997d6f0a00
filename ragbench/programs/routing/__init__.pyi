from .features import (
    FEATURES as FEATURES,
    SCORE_FEATURES as SCORE_FEATURES,
    group_of as group_of,
    question_features as question_features,
    score_features as score_features,
)
from .policy import (
    FORMAT as FORMAT,
    Candidate as Candidate,
    Leaf as Leaf,
    LearnedFrom as LearnedFrom,
    Node as Node,
    Policy as Policy,
    Split as Split,
    condition as condition,
    decide as decide,
    leaves as leaves,
)
from .router import (
    Router as Router,
)
