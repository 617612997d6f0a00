"""The proxy of a server, by the environment (`http_proxy`, `https_proxy`, `no_proxy`)."""

import base64
import re
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ragbench.errors import LMSetupError


class Proxy(NamedTuple):
    """A proxy: its server, and the header line of its credentials, blank without any."""

    host: str
    port: int
    login: str


def proxy_for(scheme: str, host: str, port: int | None = None) -> Proxy | None:
    """Return the proxy that the environment names for a server.

    Args:
        scheme: http or https.
        host: Name or address of the server.
        port: Port of the server. None for that of the scheme.

    Returns:
        The proxy. None if there is none, or NO_PROXY names the server.

    Raises:
        LMSetupError: The proxy address is malformed or not supported. The message omits its
        password.
    """
    proxies = getproxies()
    port = port or {"http": 80, "https": 443}[scheme]
    if proxy_bypass(host) or _needs_no_proxy(host, port, proxies.get("no", "")):
        return None
    address = proxies.get(scheme) or proxies.get("all") or ""
    if not address:
        return None
    if "://" not in address:
        address = f"http://{address}"
    name = f"{scheme}_proxy"
    try:
        url = urlsplit(address)
        _ = url.port  # raises ValueError if malformed
    except ValueError:
        raise LMSetupError(f"{name} is not a proxy address. Use http://HOST:PORT.") from None
    if url.scheme != "http" or not url.hostname:
        raise LMSetupError(
            f"{name} is a {url.scheme} proxy, which is not supported; give an http proxy, or "
            "name the server in no_proxy"
        )
    login = ""
    if url.username is not None:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}"
        login = f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}\r\n"
    return Proxy(url.hostname, url.port or 80, login)


def _needs_no_proxy(host: str, port: int, listed: str) -> bool:
    """Return True if `listed` names the server by name, domain, address, network or port."""
    for entry in re.split(r"[,\s]+", listed.lower()):
        name, _, number = entry.rpartition(":")
        if number.isdigit() and (":" not in name or name.endswith("]")):
            if int(number) != port:
                continue
            entry = name
        entry = entry.replace("[", "").replace("]", "").strip(".")
        try:
            if ip_address(host.strip("[]")) in ip_network(entry, strict=False):
                return True
        except ValueError:  # a name
            if entry and f".{host.lower().rstrip('.')}".endswith(f".{entry.removeprefix('*.')}"):
                return True
    return False
