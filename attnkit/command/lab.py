"""The command `lab`: open the dashboard in a browser; also without any command."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from attnkit.command.arguments import BadInput, Commands, add_command, whole_number
from attnkit.command.process import interrupts
from attnkit.foundation.process import WITH_PARENT, end_with_parent
from attnkit.ui.server.launch import (
    HOST,
    LARGEST_PORT,
    PORT,
    choose_port,
    hub_advice,
    is_reachable_from_network,
    serve,
    wanted_place,
)

_SAFE_IN_LINKS = "=&%+,;:/@!$'()*~"
"""Characters that a link may have as they are, besides letters, digits and `_.-`."""


def add_to(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands, "lab", "open the dashboard in a browser; also without any command", _run
    )
    parser.add_argument(
        "--host", help=f"address to listen on ({HOST}); 0.0.0.0 lets others in the network in"
    )
    parser.add_argument("--port", help=f"port to listen on ({PORT}, or a free one if it is taken)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--link", default="", help="settings to open with, as in an address")
    parser.add_argument(WITH_PARENT, action="store_true", help=argparse.SUPPRESS)


def _run(arguments: argparse.Namespace) -> int:
    from attnkit.service.server import server_settings

    server_settings()  # a wrong setting is one line here, and would be a traceback in the server
    if arguments.with_parent:
        end_with_parent()
    given = arguments.port
    given = None if given is None else whole_number("--port", given, 1, LARGEST_PORT)
    host, wanted = wanted_place(arguments.host, given)
    port = choose_port(host, wanted)

    def announce(address: str) -> None:
        taken = f"port {PORT} is taken; " if wanted is None and port != PORT else ""
        print(f"attnkit: {address} ({taken}Ctrl-C ends it)", flush=True)
        if advice := hub_advice():
            print(f"attnkit: {advice}", flush=True)
        if is_reachable_from_network(host):
            print(f"attnkit: others in your network can reach it, at port {port}", flush=True)

    link = quote(arguments.link.strip().lstrip("?"), safe=_SAFE_IN_LINKS)
    try:
        with interrupts:
            serve(
                host,
                port,
                link=f"?{link}" if link else "",
                open_browser=not arguments.no_browser,
                announce=announce,
            )
    except OSError as error:
        raise BadInput(f"the dashboard cannot be served: {error}") from error
    return 0
