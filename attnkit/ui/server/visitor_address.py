"""Address that a visitor connects from, to which limits apply and by which turns are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address

import streamlit as st

from attnkit.service.server import server_settings


def visitor_address(values_of: Callable[[str], Sequence[str]], peer: str | None) -> str:
    """Return the address of the visitor behind a connection.

    The setting `address_header` names the header in which a trusted proxy writes it. Proxies append
    to what the visitor sent, so only the last address in that header was written by a proxy. An
    IPv6 address is replaced by its network, because one visitor has a whole /64 of addresses.

    Args:
        values_of: Returns all values of a header by its name, such as `Headers.getlist`.
        peer: Address at the other end of the socket; None if it is unknown or loopback.

    Returns:
        The address in its canonical form. Without the setting, or if the header contains no
        address, it is `peer`.
    """
    header = server_settings().address_header
    from_proxy = ",".join(values_of(header)).rpartition(",")[2].strip() if header else ""
    return _canonical(from_proxy) or _canonical(peer or "") or "127.0.0.1"


def session_address() -> str:
    """Return the address of the visitor whose page is being drawn."""
    return visitor_address(st.context.headers.get_all, st.context.ip_address)


def _canonical(text: str) -> str:
    """Return an address in its canonical form, an IPv6 address as its network; empty if invalid."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
