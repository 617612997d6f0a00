from .arms import (
    GroupDifference as GroupDifference,
    clusters_of as clusters_of,
    columns as columns,
    shared_questions as shared_questions,
)
from .break_even import (
    Spending as Spending,
    per_question as per_question,
)
from .design import (
    COMPILED as COMPILED,
    ZERO_SHOT as ZERO_SHOT,
    VerdictRequest as VerdictRequest,
    subject as subject,
    verdict_folder as verdict_folder,
)
from .estimate import (
    estimate_verdict as estimate_verdict,
)
from .index_cost import (
    index_cost as index_cost,
    index_lines as index_lines,
    pays_from as pays_from,
    whole_cost as whole_cost,
)
from .looks import (
    looks_in_words as looks_in_words,
)
from .paired import (
    MEASURES as MEASURES,
    RunComparison as RunComparison,
    compare as compare,
    with_scores as with_scores,
)
from .prompt_diff import (
    PromptChange as PromptChange,
)
from .running import (
    run_verdict as run_verdict,
)
from .transfers import (
    Cell as Cell,
    transfer as transfer,
    transfer_folder as transfer_folder,
)
from .verdicts import (
    Verdict as Verdict,
    reread as reread,
)
