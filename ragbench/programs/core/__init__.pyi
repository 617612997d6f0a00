from .asking import (
    RESAMPLING_TEMPERATURE as RESAMPLING_TEMPERATURE,
    role_lm as role_lm,
)
from .budget import (
    Budget as Budget,
    BudgetSpentError as BudgetSpentError,
)
from .confidence import (
    Label as Label,
    Weighing as Weighing,
    ask_probabilities as ask_probabilities,
    grader as grader,
    labels_of as labels_of,
    token_probabilities as token_probabilities,
    unit as unit,
)
from .fusion import (
    Fusion as Fusion,
    fuse as fuse,
)
from .indexed import (
    IndexKnobs as IndexKnobs,
    IndexProgram as IndexProgram,
)
from .placeholders import (
    answers_used as answers_used,
    with_answers as with_answers,
)
from .program import (
    NO_ANSWER as NO_ANSWER,
    PROGRAMS as PROGRAMS,
    Autonomy as Autonomy,
    Described as Described,
    IndexAhead as IndexAhead,
    ProgramKnobs as ProgramKnobs,
    RAGProgram as RAGProgram,
    Reader as Reader,
    calls_of as calls_of,
    chain_of_thought as chain_of_thought,
    done_so_far as done_so_far,
    named as named,
    predict as predict,
    reading as reading,
)
from .prompts import (
    render as render,
)
from .similarity import (
    cosine as cosine,
    embedder_of as embedder_of,
    jaccard as jaccard,
)
from .texts import (
    distinct as distinct,
    first_sentence as first_sentence,
    is_answer as is_answer,
    sentences_of as sentences_of,
)
from .tool_loop import (
    FINISH as FINISH,
    Done as Done,
    Seen as Seen,
    Toolbox as Toolbox,
    ToolInfo as ToolInfo,
    ToolLoop as ToolLoop,
    ToolUse as ToolUse,
    Turn as Turn,
    argument_text as argument_text,
    given as given,
)
from .tool_turns import (
    Backend as Backend,
    ToolAsker as ToolAsker,
    check_backend as check_backend,
    tool_predictor as tool_predictor,
)
from .trace import (
    StopReason as StopReason,
    Trace as Trace,
)
