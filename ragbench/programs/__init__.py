"""The architectures, one file each. Importing this package registers them all."""

from ragbench.programs import (
    a_rag,
    direct,
    ircot,
    lookahead,
    multi_query,
    planner,
    react,
    reap,
    rlm,
    self_rag,
    tree_rag,
    vanilla,
)
from ragbench.programs.base import PROGRAMS, RAGProgram

__all__ = [
    "PROGRAMS",
    "RAGProgram",
    "a_rag",
    "direct",
    "ircot",
    "lookahead",
    "multi_query",
    "planner",
    "react",
    "reap",
    "rlm",
    "self_rag",
    "tree_rag",
    "vanilla",
]
