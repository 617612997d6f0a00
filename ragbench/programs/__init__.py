"""The architectures. Importing this package registers them all.

A new one is a module or a folder of its own, and one import line here.
"""

from ragbench.programs.a_rag import ARAG as ARAG
from ragbench.programs.core import PROGRAMS as PROGRAMS, RAGProgram as RAGProgram
from ragbench.programs.direct import DirectRAG as DirectRAG
from ragbench.programs.graph_rag import GraphRAG as GraphRAG
from ragbench.programs.hippo_rag import HippoRAG as HippoRAG
from ragbench.programs.ircot import IRCoT as IRCoT
from ragbench.programs.light_rag import LightRAG as LightRAG
from ragbench.programs.linear_rag import LinearRAG as LinearRAG
from ragbench.programs.lookahead.program import LookaheadRAG as LookaheadRAG
from ragbench.programs.multi_query import MultiQueryRAG as MultiQueryRAG
from ragbench.programs.planner.program import PlannerRAG as PlannerRAG
from ragbench.programs.react import ReActRAG as ReActRAG
from ragbench.programs.reap import REAP as REAP
from ragbench.programs.rlm import RLM as RLM
from ragbench.programs.rlm_repl.program import RLMRepl as RLMRepl
from ragbench.programs.routing import Router as Router
from ragbench.programs.self_rag import SelfRAG as SelfRAG
from ragbench.programs.tree_rag import RAPTOR as RAPTOR, TreeRAG as TreeRAG
from ragbench.programs.vanilla import VanillaRAG as VanillaRAG
from ragbench.programs.workflow.adaptive_rag import AdaptiveRAG as AdaptiveRAG
from ragbench.programs.workflow.crag import CRAG as CRAG
from ragbench.programs.workflow.faithful_rag import FaithfulRAG as FaithfulRAG
from ragbench.programs.workflow.flare import FLARE as FLARE
from ragbench.programs.workflow.ma_rag import MARAG as MARAG
from ragbench.programs.workflow.memo_rag import MemoRAG as MemoRAG
from ragbench.programs.workflow.ra_isf import RAISF as RAISF
from ragbench.programs.workflow.rag_enta import RAGentA as RAGentA
from ragbench.programs.workflow.rq_rag import RQRAG as RQRAG
