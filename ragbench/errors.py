"""The errors of ragbench.

Two kinds must not be confused. A *user error* is something the person at the keyboard can mend: it
is printed as one line that names the value, the choices and the cure, and the command exits with 2.
A *failure* is something that went wrong while one question was being answered: it is data, kept in
that question's record as a `Failure`, and the run goes on.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class RagbenchError(Exception):
    """An error that the user can fix; its message is one line."""

    exit_code = 2


class UnknownNameError(RagbenchError):
    """No such name in a registry; the message lists the near names, or all of them."""

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        self.kind, self.name, self.choices = kind, name, sorted(choices)
        near = difflib.get_close_matches(name, self.choices, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        if self.choices:
            listing = f"choose from {', '.join(self.choices)}"
        else:
            listing = "none are known"
        super().__init__("; ".join(filter(None, [f"no {kind} named {name!r}", hint, listing])))


class KnobError(RagbenchError):
    """A knob of the wrong type or outside its bounds."""


class ConfigError(RagbenchError):
    """A config file or a combination of options that makes no sense."""


class DataError(RagbenchError):
    """A data file that is missing or malformed; names the file, the record and the field."""


class ModelError(RagbenchError):
    """Model bytes that cannot be had, or do not match their SHA-256."""


class LMSetupError(RagbenchError):
    """An LM that cannot be used: missing key, unreachable server, malformed spec."""


class LMUnavailableError(RagbenchError):
    """An LM that was there and is not any more: its server is gone, or its quota is spent."""

    exit_code = 4


class StopSignal(BaseException):
    """Ends what runs: no `Exception`, for libraries and programs swallow those."""


class RunError(RagbenchError):
    """A run folder that cannot be used: another config, locked, unreadable."""


class CompareError(RagbenchError):
    """Two runs that cannot be compared, such as runs over different questions."""


class MissingExtraError(RagbenchError):
    """A package is not installed that one of ragbench's extras brings."""


class NoAnswerError(RagbenchError):
    """What a module of a person's own returns can be no answer, whatever it is asked."""


class StoppedError(RagbenchError):
    """A limit of spending ended the command; what is finished is kept, more of it continues."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        #: The limit, as given on the command line, or the server that is down for good.
        self.by = message
        super().__init__(f"stopped by {message}; the same command with a larger limit continues")


#: Package, as it is imported -> the extra that brings it.
EXTRA_OF = {
    "anthropic": "batch",
    "bs4": "documents",
    "datasets": "data",
    "docx": "documents",
    "faiss": "dense",
    "fastembed": "dense",
    "huggingface_hub": "data",
    "igraph": "graph",
    "onnxruntime": "dense",
    "openpyxl": "documents",
    "optuna": "tune",
    "pandas": "data",
    "pyarrow": "data",
    "pptx": "documents",
    "pypdf": "documents",
    "qdrant_client": "qdrant",
    "ray": "ray",
    "sklearn": "graph",
    "spacy": "spacy",
    "tokenizers": "dense",
    "xllamacpp": "local",
}


def missing_extra(error: ImportError, feature: str = "this") -> MissingExtraError | None:
    """Returns the error for a missing package; None if no extra of ragbench installs it."""
    package = str(error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    cure = f"run pip install 'ragbench[{EXTRA_OF[package]}]'"
    return MissingExtraError(f"{feature} needs {package}; {cure}")


@contextmanager
def needs_extra(feature: str) -> Iterator[None]:
    """For imports in the block, of packages that an extra brings.

    Raises:
        MissingExtraError: one is not installed; says that `feature` needs it, and the cure.
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(error, feature) or error from None
