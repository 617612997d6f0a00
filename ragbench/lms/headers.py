"""Custom headers of each call, such as one that a gateway requires.

A value is sent unchanged, or read from the environment at each call if it is `env:VARIABLE`. A
value that looks like a secret is refused in the first form, because settings are printed and stored
with a run.
"""

import os
import re
from collections.abc import Mapping

from ragbench.errors import LMSetupError
from ragbench.redact import hide, redact

_VARIABLE = "env:"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET = re.compile(r"auth|key|token|secret|cookie|passw|cred|session", re.I)
#: Headers that the client writes itself.
_OWN = frozenset({"host", "content-length", "content-type", "accept-encoding", "connection"})


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return `headers` by name. Hide the variables that they name from all later output.

    Raises:
        LMSetupError: An invalid name, a secret in plain text, or an unknown variable.
    """
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or name.lower() in _OWN:
            raise LMSetupError(f"header {name!r} cannot be set; give NAME=VALUE or NAME=env:VAR")
        if value.startswith(_VARIABLE):
            variable = value.removeprefix(_VARIABLE)
            if not os.environ.get(variable):
                raise LMSetupError(f"header {name} is {value}, and {variable} is not set")
            hide(variable)
            continue
        if _SECRET.search(name) or redact(value) != value:
            raise LMSetupError(
                f"header {name} may hold a secret, which would be stored with the run; set it in a "
                f"environment variable and give {name}=env:VARIABLE"
            )
        if not _is_sendable(value):
            raise LMSetupError(f"header {name} holds characters that cannot be sent")
    return dict(headers)


def sent_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers to send, with the present values of environment variables.

    Raises:
        LMSetupError: A variable is no longer set, or its value cannot be sent.
    """
    sent: list[tuple[str, str]] = []
    for name, value in headers.items():
        if value.startswith(_VARIABLE):
            variable = value.removeprefix(_VARIABLE)
            value = os.environ.get(variable, "")
            if not value or not _is_sendable(value):
                raise LMSetupError(
                    f"{variable} contains characters that cannot be sent. Set it again."
                )
        sent.append((name, value))
    return sent


def _is_sendable(value: str) -> bool:
    return value.isascii() and value.isprintable()
