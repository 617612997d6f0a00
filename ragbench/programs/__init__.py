"""The programs. Importing this package registers all of them.

A new program is a module or package, and one import line here.
"""

from ragbench.programs.a_rag import ARAG
from ragbench.programs.core import PROGRAMS, RAGProgram
from ragbench.programs.external import ModuleProgram
from ragbench.programs.gold import GoldRAG
from ragbench.programs.graph_rag import GraphRAG
from ragbench.programs.hippo_rag import HippoRAG
from ragbench.programs.hyde import HyDE
from ragbench.programs.ircot import IRCoT
from ragbench.programs.iter_retgen import IterRetGen
from ragbench.programs.light_rag import LightRAG
from ragbench.programs.linear_rag import LinearRAG
from ragbench.programs.lookahead.program import LookaheadRAG
from ragbench.programs.multi_query import MultiQueryRAG
from ragbench.programs.planner.program import PlannerRAG
from ragbench.programs.react import ReActRAG
from ragbench.programs.reap import REAP
from ragbench.programs.rlm import RLM
from ragbench.programs.rlm_repl.program import RLMRepl
from ragbench.programs.search_o1 import SearchO1
from ragbench.programs.self_ask import SelfAsk
from ragbench.programs.self_rag.program import SelfRAG
from ragbench.programs.tree_rag import RAPTOR, TreeRAG
from ragbench.programs.vanilla import DirectRAG, VanillaRAG
from ragbench.programs.workflow.adaptive_rag import AdaptiveRAG
from ragbench.programs.workflow.crag import CRAG
from ragbench.programs.workflow.faithful_rag import FaithfulRAG
from ragbench.programs.workflow.flare import FLARE
from ragbench.programs.workflow.ma_rag import MARAG
from ragbench.programs.workflow.main_rag import MAINRAG
from ragbench.programs.workflow.memo_rag import MemoRAG
from ragbench.programs.workflow.ra_isf import RAISF
from ragbench.programs.workflow.rag_enta import RAGentA
from ragbench.programs.workflow.rq_rag import RQRAG
