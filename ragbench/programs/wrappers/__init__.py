"""Programs around a program: the controls that a verdict on compiling needs."""

from ragbench.programs.wrappers.base import Around as Around
from ragbench.programs.wrappers.form import (
    FORM_INSTRUCTION as FORM_INSTRUCTION,
    repair_form as repair_form,
)
from ragbench.programs.wrappers.votes import (
    Voting as Voting,
    with_more_votes as with_more_votes,
)
