"""Typed signatures, filed by role; their docstrings are the instructions that programs start from.

Every word of a signature reaches the LM and seeds every optimizer, so sources and remarks stand in
comments and module docstrings. Passages are shown as "[n] title | text" with n from 1, so citations
and kept items are integers. The module a signature stands in decides its role, by which the ledger
groups calls and `--lm-for` gives each role its own LM.
"""

from ragbench.signatures.answering import (
    AnswerFromContext,
    AnswerFromPlan,
    AnswerPart,
    AnswerWithHints,
    DirectAnswer,
    RefineAnswer,
    SynthesizeAnswer,
)
from ragbench.signatures.extracting import (
    BindVariables,
    ExtractEntities,
    FactExtract,
    ReadAndJudge,
    Summarize,
)
from ragbench.signatures.judging import (
    AttributeAnswer,
    AttributeTriples,
    ClassifyFailure,
    ContinueRetrieval,
    CritiquedAnswer,
    CritiquedSegment,
    ExplainMistake,
    IsRel,
    IsSup,
    IsUse,
    JudgeAnswer,
    LabelClaims,
    MatchStatements,
    Mistake,
    RateAnswer,
    RetrievalDecision,
    RetrievalPlan,
    SelectItems,
    SplitStatements,
    SupportedStatements,
)
from ragbench.signatures.planning import (
    PLANNER_ACTIONS,
    DraftPlan,
    DraftPlanGraph,
    DraftQueryGraph,
    NextSubTask,
    PlannerAction,
    RecursiveDecompose,
    RepairPlan,
    UpdatePlan,
)
from ragbench.signatures.querying import (
    QUERY_KINDS,
    ExpandQueries,
    QueryMode,
)
from ragbench.signatures.reasoning import (
    ActStep,
    CoTStep,
    ReActStep,
    ToolStep,
    ToolTurn,
)
from ragbench.signatures.reranking import (
    RankPassages,
)
from ragbench.signatures.roles import ROLES, role_of
from ragbench.signatures.types import (
    Binding,
    LookUpNode,
    PlanAction,
    SubTask,
    TreeNode,
)
from ragbench.signatures.wording import ANSWER_STYLES, GUESS, AnswerStyle, styled

__all__ = [
    "ANSWER_STYLES",
    "GUESS",
    "PLANNER_ACTIONS",
    "QUERY_KINDS",
    "ROLES",
    "ActStep",
    "AnswerFromContext",
    "AnswerFromPlan",
    "AnswerPart",
    "AnswerStyle",
    "AnswerWithHints",
    "AttributeAnswer",
    "AttributeTriples",
    "BindVariables",
    "Binding",
    "ClassifyFailure",
    "CoTStep",
    "ContinueRetrieval",
    "CritiquedAnswer",
    "CritiquedSegment",
    "DirectAnswer",
    "DraftPlan",
    "DraftPlanGraph",
    "DraftQueryGraph",
    "ExpandQueries",
    "ExplainMistake",
    "ExtractEntities",
    "FactExtract",
    "IsRel",
    "IsSup",
    "IsUse",
    "JudgeAnswer",
    "LabelClaims",
    "LookUpNode",
    "MatchStatements",
    "Mistake",
    "NextSubTask",
    "PlanAction",
    "PlannerAction",
    "QueryMode",
    "RankPassages",
    "RateAnswer",
    "ReActStep",
    "ReadAndJudge",
    "RecursiveDecompose",
    "RefineAnswer",
    "RepairPlan",
    "RetrievalDecision",
    "RetrievalPlan",
    "SelectItems",
    "SplitStatements",
    "SubTask",
    "Summarize",
    "SupportedStatements",
    "SynthesizeAnswer",
    "ToolStep",
    "ToolTurn",
    "TreeNode",
    "UpdatePlan",
    "role_of",
    "styled",
]
