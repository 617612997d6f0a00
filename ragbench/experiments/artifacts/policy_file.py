"""Policy files: written once, read for a run, never run on the questions they were learned from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dspy

from ragbench.errors import DataError, RunError
from ragbench.experiments.artifacts.held_out import DataCard, Questions, shared_questions
from ragbench.experiments.store import check_output, read_json, write_json
from ragbench.programs.routing import Policy


def write_policy(policy: Policy, path: Path) -> None:
    """Write `policy` to `path`.

    Raises:
        RunError: it cannot be written.
    """
    check_output(path)
    write_json(path, policy.model_dump(mode="json"))


def read_policy(path: Path) -> Policy:
    """The policy in `path`.

    Raises:
        RunError: it is missing, or is no policy.
    """
    if not path.is_file():
        raise RunError(f"no policy {path}; `ragbench recommend RUN... --router -o FILE` writes one")
    return read_json(path, Policy)


def assert_not_learned_from(
    policy: Policy, examples: Sequence[dspy.Example], *, dataset: str
) -> None:
    """Do nothing if `policy` was learned from no question of `examples`.

    Raises:
        DataError: it was; the message names the first and their number.
    """
    source = policy.learned_from
    asked = Questions(ids=source.ids, hashes=source.hashes)
    none = Questions(ids=[], hashes=[])
    card = DataCard(name=source.dataset, digest=source.digest, train=asked, validation=none)
    breach = shared_questions(card, examples, dataset=dataset)
    if breach.shared:
        raise DataError(
            f"the policy was learned from {len(breach.shared)} of these {breach.total} questions "
            f"(first: {breach.shared[0]}); run it on others, such as another split"
        )
