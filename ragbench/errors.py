"""Define the errors of ragbench.

There are two kinds. A *user error* is a problem that the user can fix: ragbench prints one line
with the value, the choices and the fix, and exits with code 2. A *failure* is a problem with one
question: it is data, stored in the question's record as a `Failure`, and the run continues.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class RagbenchError(Exception):
    """An error that the user can fix; its message is one line."""

    exit_code = 2


class UnknownNameError(RagbenchError):
    """Unknown name in a registry; the message lists similar names, or all names."""

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


class LimitsError(ConfigError):
    """A limit cannot be kept, because a call of an LM is not metered. It ends the command."""


class DataError(RagbenchError):
    """A data file that is missing or malformed; names the file, the record and the field."""


class ModelError(RagbenchError):
    """Model bytes that cannot be had, or do not match their SHA-256."""


class LMSetupError(RagbenchError):
    """An LM that cannot be used: missing key, unreachable server, malformed spec."""


class LMUnavailableError(RagbenchError):
    """An LM became unavailable: its server is down, or its quota is used up."""

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
    """A user's module returned a value that cannot be an answer."""


class StoppedError(RagbenchError):
    """A spending limit ended the command; finished work is saved, a larger limit resumes."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        #: The limit, as given on the command line, or the server that is down for good.
        self.by = message
        super().__init__(f"stopped by {message}; the same command with a larger limit continues")


#: How to install an extra. The name ragbench on the public package index is another project's, so
#: every instruction installs from a checkout or from a wheel file.
INSTALL = "in a checkout of ragbench, run: pip install '.[{extra}]'"
#: Import name of a package -> the extra that installs it.
EXTRA_OF = {
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
    "pypdf": "documents",
    "ray": "ray",
    "sklearn": "graph",
    "spacy": "spacy",
    "tokenizers": "dense",
    "xllamacpp": "local",
}


def missing_extra(error: ImportError, feature: str = "this") -> MissingExtraError | None:
    """Return the error for a missing package, or None if no extra installs it.

    Args:
        error: The failed import.
        feature: Feature that needs the package, for the message.
    """
    package = str(error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    cure = INSTALL.format(extra=EXTRA_OF[package])
    return MissingExtraError(f"{feature} needs {package}; {cure}")


@contextmanager
def needs_extra(feature: str) -> Iterator[None]:
    """Guard imports of packages that an extra installs.

    Args:
        feature: Feature that needs the package, for the message.

    Raises:
        MissingExtraError: A package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise missing_extra(error, feature) or error from None
