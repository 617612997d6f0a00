from .annotator import (
    Annotated as Annotated,
    Annotation as Annotation,
    Unit as Unit,
    annotate as annotate,
    fill as fill,
)
from .asking import (
    Asking as Asking,
    Pace as Pace,
)
from .attribution import (
    Attribution as Attribution,
)
from .calibration import (
    calibrate as calibrate,
)
from .causes import (
    Causes as Causes,
)
from .evidence import (
    Evidence as Evidence,
)
from .failure_modes import (
    FailureModes as FailureModes,
)
from .grounding import (
    Grounding as Grounding,
    Group as Group,
    label_claims as label_claims,
)
from .journal import (
    JOURNAL as JOURNAL,
    key_of as key_of,
    read_journal as read_journal,
)
from .judging import (
    METRIC_OF as METRIC_OF,
    Judging as Judging,
    Rule as Rule,
    check_judge as check_judge,
)
from .kinds import (
    describe as describe,
)
from .statements import (
    Statements as Statements,
)
from .wording import (
    spending as spending,
)
