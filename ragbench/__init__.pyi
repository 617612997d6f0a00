from .api import (
    Run as Run,
    compare as compare,
    compile as compile,
    evaluate as evaluate,
    load_dataset as load_dataset,
    load_program as load_program,
    make_lm as make_lm,
    make_program as make_program,
    make_retriever as make_retriever,
    metric as metric,
    open_run as open_run,
    recommend as recommend,
    table as table,
    verdict as verdict,
)
from .lms.calls import Limits as Limits
from .retrievers import Passage as Passage

__version__: str
