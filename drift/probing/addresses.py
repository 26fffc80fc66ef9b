"""Which addresses may be asked: URLs as models write them, and the guard of the public internet.

:func:`target_of` reads a URL by its letters alone, :func:`public` tells an address of the public
internet from every other one. Nothing here resolves a name or opens a connection.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_address, ip_network

import httpx

PORTS = {"http": 80, "https": 443}
#: Names that no public server has (RFC 6761, 6762, 7686, 8375, and ICANN's .internal).
LOCAL = (".localhost", ".local", ".internal", ".onion", ".home.arpa")
_UNWRITABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
#: Special-purpose networks of IANA's registries, multicast, and Azure's metadata address. Of
#: IPv6 only 2000::/3 is public: that leaves out mapped, NAT64, local and multicast addresses.
_PUBLIC_6 = ip_network("2000::/3")
_SPECIAL = [
    ip_network(network)
    for network in """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12
    192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16
    192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20
    """.split()
]


class Verdict(Exception):
    """Ends a visit: what was found (or *guarded*) and why."""

    def __init__(self, found: str, reason: str) -> None:
        super().__init__(reason)
        self.found, self.reason = found, reason


def public(ip: str) -> bool:
    """Whether the literal address `ip` is one of the public internet.

    Addresses in which an IPv4 address is embedded (mapped, NAT64, 6to4, Teredo) are not, so
    that nothing depends on how they are unwrapped.
    """
    try:
        address = ip_address(ip)
    except ValueError:
        return False
    if address.version == 6 and (address not in _PUBLIC_6 or "%" in ip):
        return False
    return not any(address in network for network in _SPECIAL)


def target_of(text: str, length: int = 8000) -> httpx.URL:
    """Return what is requested for the URL `text`: an ASCII host, no fragment.

    Raises
    ------
    Verdict
        It is malformed: longer than `length`, with white space, control characters or
        surrogates, not http or https, with credentials, a port that is no number from 1 to
        65535, no host, a host that IDNA 2008 cannot write, that is neither a name of at least
        two labels (or ``localhost``) nor an address, an IPv4 address other than four decimal
        numbers, or an IPv6 address with a zone.
    """
    scheme, mark, rest = text.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    parts = re.fullmatch(r"(\[[^\[\]%]+\]|[^\[\]:]+)(?::([0-9]{0,5}))?", authority)
    faults = {
        f"longer than {length} characters": len(text) > length,
        "white space or control characters": _UNWRITABLE.search(text),
        "not http or https": not mark or scheme.lower() not in PORTS,
        "credentials": "@" in authority,
        "no usable host or port": not parts or not 0 < int(parts[2] or 80) < 65536,
    }
    try:
        url = httpx.URL("" if any(faults.values()) else text)
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL()
    host = host_of(url).removesuffix(".")
    if not (":" in host or _is_name(host) or is_ipv4(host)):
        fault = next((fault for fault, present in faults.items() if present), "no usable host")
        raise Verdict("malformed", fault)
    return url.copy_with(host=host, fragment=None)


def host_of(url: httpx.URL) -> str:
    """Return the host of a URL in ASCII."""
    # URL.host would decode punycode, and fail where it is none.
    return url.raw_host.decode("ascii")


def _is_name(host: str) -> bool:
    labels = host.split(".")
    # A last label in numbers makes what C libraries and browsers read as an IPv4 address.
    numeric = re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1])
    whole = len(host) <= 253 and all(map(_LABEL.fullmatch, labels)) and not numeric
    return whole and (len(labels) > 1 or host == "localhost")


def is_ipv4(host: str) -> bool:
    """Whether `host` is an IPv4 address in four decimal numbers."""
    try:
        return bool(IPv4Address(host))
    except ValueError:
        return False
