"""The programs. `PROGRAMS` imports a program when it is used.

A new program is a module or package, and an entry in `programs.yaml`.
"""

from ragbench.programs.core import PROGRAMS, RAGProgram
from ragbench.programs.external import ModuleProgram
