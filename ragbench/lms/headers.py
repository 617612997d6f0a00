"""Headers that a person has sent with each call, such as one that a gateway wants.

A value is sent as it is, or read at each call from the environment where it is `env:VARIABLE`. What
looks like a secret is refused in the first form: settings are printed and kept with a run.
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
    """`headers` by name; variables that they name are kept out of all that is written from now on.

    Raises:
        LMSetupError: a name that is none, a secret that is given as it is, or no such variable.
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
                f"header {name} may hold a secret, which would be kept with the run; set it in a "
                f"variable of the environment and give {name}=env:VARIABLE"
            )
        if not (value.isascii() and value.isprintable()):
            raise LMSetupError(f"header {name} holds characters that cannot be sent")
    return dict(headers)


def sent_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns what is sent for `headers`, as the environment is now.

    Raises:
        LMSetupError: a variable is not set any more, or holds what cannot be sent.
    """
    sent: list[tuple[str, str]] = []
    for name, value in headers.items():
        if value.startswith(_VARIABLE):
            variable = value.removeprefix(_VARIABLE)
            value = os.environ.get(variable, "")
            if not value or not (value.isascii() and value.isprintable()):
                raise LMSetupError(f"{variable} holds characters that cannot be sent; set it anew")
        sent.append((name, value))
    return sent
