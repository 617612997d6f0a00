"""Typed signatures, filed by role; their docstrings are the instructions that programs start from.

Every word of a signature reaches the LM and seeds every optimizer, so sources and remarks stand in
comments and module docstrings. Passages are shown as "[n] title | text" with n from 1, so citations
and kept items are integers. The module a signature stands in decides its role, by which the ledger
groups calls and `--lm-for` gives each role its own LM.
"""

from ragbench.signatures.answering import (
    AnswerFaithfully as AnswerFaithfully,
    AnswerFromContext as AnswerFromContext,
    AnswerFromPlan as AnswerFromPlan,
    AnswerInStages as AnswerInStages,
    AnswerPart as AnswerPart,
    AnswerTask as AnswerTask,
    AnswerWithConfidence as AnswerWithConfidence,
    AnswerWithHints as AnswerWithHints,
    CitedAnswer as CitedAnswer,
    DirectAnswer as DirectAnswer,
    RefineAnswer as RefineAnswer,
    SynthesizeAnswer as SynthesizeAnswer,
)
from ragbench.signatures.extracting import (
    BindVariables as BindVariables,
    ExtractEntities as ExtractEntities,
    ExtractGraph as ExtractGraph,
    ExtractKeyedGraph as ExtractKeyedGraph,
    ExtractTriples as ExtractTriples,
    FactExtract as FactExtract,
    ReadAndJudge as ReadAndJudge,
    ReportCommunity as ReportCommunity,
    SplitFacts as SplitFacts,
    Summarize as Summarize,
    TakeNotes as TakeNotes,
)
from ragbench.signatures.judging import (
    AttributeAnswer as AttributeAnswer,
    AttributeTriples as AttributeTriples,
    AuditClaims as AuditClaims,
    ClassifyFailure as ClassifyFailure,
    ContinueRetrieval as ContinueRetrieval,
    CritiquedAnswer as CritiquedAnswer,
    CritiquedSegment as CritiquedSegment,
    ExplainMistake as ExplainMistake,
    HoldsAnswer as HoldsAnswer,
    IsRel as IsRel,
    IsSup as IsSup,
    IsUse as IsUse,
    JudgeAnswer as JudgeAnswer,
    LabelClaims as LabelClaims,
    MatchStatements as MatchStatements,
    Mistake as Mistake,
    QuestionComplexity as QuestionComplexity,
    RateAnswer as RateAnswer,
    RetrievalDecision as RetrievalDecision,
    RetrievalPlan as RetrievalPlan,
    SelectItems as SelectItems,
    SplitStatements as SplitStatements,
    SupportedStatements as SupportedStatements,
)
from ragbench.signatures.planning import (
    PLANNER_ACTIONS as PLANNER_ACTIONS,
    DefineStep as DefineStep,
    DraftPlan as DraftPlan,
    DraftPlanGraph as DraftPlanGraph,
    DraftQueryGraph as DraftQueryGraph,
    NextSubTask as NextSubTask,
    PlannerAction as PlannerAction,
    PlanSteps as PlanSteps,
    RecursiveDecompose as RecursiveDecompose,
    RepairPlan as RepairPlan,
    SplitQuestion as SplitQuestion,
    UpdatePlan as UpdatePlan,
)
from ragbench.signatures.querying import (
    QUERY_ACTIONS as QUERY_ACTIONS,
    QUERY_KINDS as QUERY_KINDS,
    ExpandQueries as ExpandQueries,
    ExtractKeywords as ExtractKeywords,
    QueryAction as QueryAction,
    QueryMode as QueryMode,
    RecallClues as RecallClues,
    RefineQuery as RefineQuery,
    SurrogateQuestions as SurrogateQuestions,
)
from ragbench.signatures.reasoning import (
    ActStep as ActStep,
    CoTStep as CoTStep,
    DraftSentence as DraftSentence,
    ReActStep as ReActStep,
    RecallFacts as RecallFacts,
    RecallKnowledge as RecallKnowledge,
    RecallPassage as RecallPassage,
    ToolStep as ToolStep,
    ToolTurn as ToolTurn,
)
from ragbench.signatures.reranking import (
    RankPassages as RankPassages,
)
from ragbench.signatures.roles import ROLES as ROLES, role_of as role_of
from ragbench.signatures.types import (
    Binding as Binding,
    LookUpNode as LookUpNode,
    PlanAction as PlanAction,
    SubTask as SubTask,
    TreeNode as TreeNode,
)
from ragbench.signatures.wording import (
    ANSWER_STYLES as ANSWER_STYLES,
    GUESS as GUESS,
    AnswerStyle as AnswerStyle,
    styled as styled,
)
