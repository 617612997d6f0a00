"""A program that gives each question to one of several programs, by a learned rule."""

from ragbench.programs.routing.features import (
    FEATURES as FEATURES,
    question_features as question_features,
)
from ragbench.programs.routing.policy import (
    FORMAT as FORMAT,
    Candidate as Candidate,
    Leaf as Leaf,
    LearnedFrom as LearnedFrom,
    Node as Node,
    Policy as Policy,
    Split as Split,
    decide as decide,
    leaves as leaves,
)
from ragbench.programs.routing.router import Router as Router
