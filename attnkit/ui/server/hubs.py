"""Hubs, which run notebooks on their own machines: how a browser reaches a server there."""

from __future__ import annotations

import os

_COLAB = (
    "Colab passes no WebSockets on, so no browser can open the dashboard that runs there: show "
    "results in the notebook (`result`, `result.plot()`), or run attnkit on your own computer."
)
_JUPYTERHUB = (
    "This address needs jupyter-server-proxy: if it is not found, run `pip install "
    "jupyter-server-proxy` in the environment of JupyterLab and restart your server."
)


def hub_address(port: int, base: str = "") -> str:
    """Return the address of a port for a browser outside of the hub; empty without a hub.

    Without `JUPYTERHUB_PUBLIC_URL` it is only a path, which works as a link within a notebook.

    Args:
        port: Port on which a server listens.
        base: Path of the server's pages, as in Streamlit's option `server.baseUrlPath`.
    """
    end = f"{base.strip('/')}/".lstrip("/")
    if "CODESPACES" in os.environ:
        names = ("CODESPACE_NAME", "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN")
        name, domain = (os.environ.get(variable) for variable in names)
        return f"https://{name}-{port}.{domain}/{end}" if name and domain else ""
    if prefix := os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "").strip("/"):
        public = os.environ.get("JUPYTERHUB_PUBLIC_URL", "").rstrip("/")
        start = public if public.endswith(f"/{prefix}") else f"/{prefix}"
        return f"{start}/proxy/{port}/{end}"
    return ""


def hub_advice() -> str:
    """Return what a hub needs before its users can open the dashboard; empty without such a hub."""
    if "COLAB_RELEASE_TAG" in os.environ:
        return _COLAB
    return _JUPYTERHUB if os.environ.get("JUPYTERHUB_SERVICE_PREFIX") else ""
