from .advice import (
    print_advice as print_advice,
)
from .comparison import (
    print_comparison as print_comparison,
)
from .compiled import (
    find_programs as find_programs,
    print_programs as print_programs,
)
from .errors import (
    Errors as Errors,
    errors_of as errors_of,
    print_errors as print_errors,
)
from .grid import (
    FORMATS as FORMATS,
    Grid as Grid,
    flush as flush,
    for_machines as for_machines,
    print_grid as print_grid,
    set_format as set_format,
)
from .run_list import (
    print_run_list as print_run_list,
)
from .scores import (
    print_scores as print_scores,
)
from .sweep import (
    print_estimate as print_estimate,
    print_swept as print_swept,
)
from .tables import (
    console as console,
    label_runs as label_runs,
    plain as plain,
    print_runs as print_runs,
    print_table as print_table,
)
from .trace import (
    print_run as print_run,
    print_trace as print_trace,
    trace_lines as trace_lines,
)
from .transfer import (
    print_matrix as print_matrix,
)
from .tune import (
    print_tuned as print_tuned,
)
from .verdict import (
    print_verdict as print_verdict,
)
