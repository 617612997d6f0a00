from .budget import (
    estimate_compile as estimate_compile,
)
from .compiler import (
    OnMessage as OnMessage,
    compile_program as compile_program,
)
from .planning import (
    ASKED as ASKED,
    Plan as Plan,
    compile_folder as compile_folder,
    folder_name as folder_name,
    make_plan as make_plan,
)
