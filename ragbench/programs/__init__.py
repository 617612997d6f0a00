"""The architectures. Importing this package registers them all.

A new one is a module or a folder of its own, and one import line here.
"""

from ragbench.programs.a_rag.program import ARAG
from ragbench.programs.core import PROGRAMS, RAGProgram
from ragbench.programs.direct import DirectRAG
from ragbench.programs.hippo_rag import HippoRAG
from ragbench.programs.ircot import IRCoT
from ragbench.programs.linear_rag import LinearRAG
from ragbench.programs.lookahead.program import LookaheadRAG
from ragbench.programs.multi_query import MultiQueryRAG
from ragbench.programs.planner.program import PlannerRAG
from ragbench.programs.react.program import ReActRAG
from ragbench.programs.reap.program import REAP
from ragbench.programs.rlm.program import RLM
from ragbench.programs.self_rag.program import SelfRAG
from ragbench.programs.tree_rag import TreeRAG
from ragbench.programs.vanilla import VanillaRAG

__all__ = [
    "ARAG",
    "PROGRAMS",
    "REAP",
    "RLM",
    "DirectRAG",
    "HippoRAG",
    "IRCoT",
    "LinearRAG",
    "LookaheadRAG",
    "MultiQueryRAG",
    "PlannerRAG",
    "RAGProgram",
    "ReActRAG",
    "SelfRAG",
    "TreeRAG",
    "VanillaRAG",
]
