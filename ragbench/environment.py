"""The environment of child processes: what they need to run, and no keys."""

import os
from collections.abc import Mapping

#: What Python, its libraries and the C library need to start and to find their files.
_NEEDED = (
    "APPDATA", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH", "HOME", "LANG", "LD_LIBRARY_PATH",
    "LOCALAPPDATA", "OMP_NUM_THREADS", "PATH", "PYTHONHOME", "PYTHONPATH", "SYSTEMROOT", "TEMP",
    "TMP", "TMPDIR", "USERPROFILE", "VIRTUAL_ENV", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
#: What a program that downloads needs beside it.
NETWORK = (
    "ALL_PROXY", "CURL_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR", "SSL_CERT_FILE",
)  # fmt: skip


def child_environment(
    *names: str, prefixes: tuple[str, ...] = (), **values: str
) -> Mapping[str, str]:
    """What a child process gets: what it needs, the variables `names`, and `values`.

    `prefixes` are of further variables, such as `PIP_`; locale variables are always handed on.
    """
    wanted = {*_NEEDED, *names, *(name.lower() for name in names)}
    begins = ("LC_", *prefixes)
    kept = {n: v for n, v in os.environ.items() if n in wanted or n.startswith(begins)}
    return {**kept, **values}
