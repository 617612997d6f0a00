"""Compiling a program with an optimizer."""

from ragbench.experiments.compile.compiler import (
    OnMessage as OnMessage,
    compile_program as compile_program,
)
from ragbench.experiments.compile.planning import (
    ASKED as ASKED,
    Plan as Plan,
    compile_folder as compile_folder,
    estimate_compile as estimate_compile,
    folder_name as folder_name,
    make_plan as make_plan,
)
