"""Attacks on a hosted copy, over loopback and bounded in time: `python tests/attacks.py`.

Starts the hosted copy with the command of the image, trains on it as a visitor, and lets every
attack run in a process of its own while another visitor opens pages. It prints, for each attack,
the seconds until a page was there (the slowest during the attack, and ten seconds after), by how
many megabytes the server grew, and whether the training went on. The attacker comes from another
address of loopback than the visitors, or from the same one with `--same-address`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException

from children import child
from crowd import Server, finished, hosted
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.frames import Opcode
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from attnkit.bench.visitor import HOST, Visitor

FOREIGN = "127.0.0.2"
"""Another address of loopback, from which attackers come. Nothing here leaves loopback."""

LARGEST = 2**25
TRAINING = "v=1&n_seeds=4&steps=5000&first_seed=4711"

REFUSED = (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, EOFError, TimeoutError)


@contextmanager
def attacker(port: int, source: str = FOREIGN, origin: str = "") -> Iterator[ClientConnection]:
    """One WebSocket of an attacker."""
    opened = socket.create_connection((HOST, port), 10, source_address=(source, 0))
    with connect(
        f"ws://{HOST}:{port}/_stcore/stream",
        sock=opened,
        origin=Origin(origin or f"http://{HOST}:{port}"),
        subprotocols=[Subprotocol("streamlit")],
        proxy=None,
        max_size=LARGEST,
        open_timeout=10,
        close_timeout=0.2,
        ping_interval=None,
    ) as connection:
        yield connection


def message(**fields: object) -> bytes:
    """A message of the given kind, such as `clear_cache=True`."""
    return BackMsg(**fields).SerializeToString()


def rerun(**fields: object) -> bytes:
    """A message that draws a page."""
    made = BackMsg()
    made.rerun_script.widget_states.SetInParent()
    for name, value in fields.items():
        setattr(made.rerun_script, name, value)
    return made.SerializeToString()


def unfinished_message(n_bytes: int = 19 * 10**6) -> bytes:
    """The beginning of a frame that says how long the message will be."""
    return bytes([0x80 | Opcode.BINARY, 0x80 | 127]) + n_bytes.to_bytes(8, "big") + bytes(4)


def with_states(n_bytes: int) -> bytes:
    """A message that draws a page, with the state of a widget that nobody has."""
    made = BackMsg()
    made.rerun_script.widget_states.widgets.add(id="large", string_value="x" * n_bytes)
    return made.SerializeToString()


def answer(connection: ClientConnection, kind: str, seconds: float = 5.0) -> ForwardMsg | None:
    """The next message of a kind, or None if none comes in time."""
    deadline = time.monotonic() + seconds
    with suppress(TimeoutError, ConnectionClosed):
        while time.monotonic() < deadline:
            payload = connection.recv(timeout=deadline - time.monotonic(), decode=False)
            found = ForwardMsg.FromString(payload)
            if found.WhichOneof("type") == kind:
                return found
    return None


def close_code(connection: ClientConnection, seconds: float = 5.0) -> int | None:
    """The code with which the server closes the connection; None if it does not in time."""
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            connection.recv(timeout=deadline - time.monotonic(), decode=False)
    except TimeoutError:
        return None
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else 1006
    return None


Act = Callable[[ClientConnection, Counter[str], float], None]


def repeat(
    port: int, seconds: float, source: str, act: Act, n_at_once: int, origin: str = ""
) -> Counter[str]:
    """Open connections and misuse each, so many at once; open another one when one is closed."""
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds

    def run(_: int) -> None:
        while time.monotonic() < deadline:
            try:
                with attacker(port, source, origin) as connection:
                    counts["opened"] += 1
                    act(connection, counts, deadline)
            except REFUSED:
                counts["refused or closed"] += 1

    with ThreadPoolExecutor(n_at_once) as pool:
        list(pool.map(run, range(n_at_once)))
    return counts


def send(payload: Callable[[int], bytes], pause: float = 0.0, *, deaf: bool = False) -> Act:
    """Send messages until the connection is closed or the time is over.

    Args:
        payload: Makes the message of a number.
        pause: Seconds between two messages.
        deaf: Take none of the answers.
    """

    def act(connection: ClientConnection, counts: Counter[str], deadline: float) -> None:
        if not deaf:
            threading.Thread(target=drain, args=(connection,), daemon=True).start()
        for number in range(1_000_000):
            if time.monotonic() > deadline:
                return
            connection.send(payload(number))
            counts["sent"] += 1
            if pause:
                time.sleep(pause)

    return act


def drain(connection: ClientConnection) -> None:
    """Take all answers and forget them."""
    with suppress(*REFUSED):
        for _ in connection:
            pass


def flood(port: int, seconds: float, source: str) -> Counter[str]:
    """Four connections that ask for whole pages as fast as they can, and come again."""
    return repeat(port, seconds, source, send(lambda _: rerun()), 4)


def within_limits(port: int, seconds: float, source: str) -> Counter[str]:
    """Thirty connections that ask for whole pages just below what one connection may."""
    return repeat(port, seconds, source, send(lambda _: rerun(), pause=0.26), 30)


def come_and_go(port: int, seconds: float, source: str) -> Counter[str]:
    """Connections that ask for one page and leave, as fast as eight hands can."""

    def act(connection: ClientConnection, counts: Counter[str], deadline: float) -> None:
        connection.send(rerun())
        counts["sent"] += 1

    return repeat(port, seconds, source, act, 8)


def deaf(port: int, seconds: float, source: str) -> Counter[str]:
    """Ten connections that ask for pages and take none of the answers."""
    return repeat(port, seconds, source, send(lambda _: rerun(), pause=0.3, deaf=True), 10)


def large(port: int, seconds: float, source: str) -> Counter[str]:
    """Messages of almost a megabyte, of states of widgets that nobody has."""
    one = with_states(950_000)
    return repeat(port, seconds, source, send(lambda _: one, pause=0.05), 8)


def unfinished(port: int, seconds: float, source: str) -> Counter[str]:
    """Messages of 19 MB that never end, on 20 connections."""

    def act(connection: ClientConnection, counts: Counter[str], deadline: float) -> None:
        connection.socket.settimeout(10)
        connection.socket.sendall(unfinished_message())
        for _ in range(18):
            connection.socket.sendall(bytes(10**6))
            counts["megabytes sent"] += 1
        while time.monotonic() < deadline and connection.state.name == "OPEN":
            time.sleep(0.1)

    return repeat(port, seconds, source, act, 20)


def uploads(port: int, seconds: float, source: str) -> Counter[str]:
    """Ask for 10,000 addresses to upload to, and upload a megabyte to each as long as time is."""
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    names = [f"{number}.gguf" for number in range(10_000)]
    with suppress(*REFUSED), attacker(port, source) as connection:
        connection.send(rerun())
        answer(connection, "script_finished", seconds)
        connection.send(message(file_urls_request={"request_id": "a", "file_names": names}))
        granted = answer(connection, "file_urls_response", 2)
        files = [] if granted is None else granted.file_urls_response.file_urls
        urls = [file.upload_url for file in files]
        counts["granted"] = len(urls)
        for url in urls or ["/_stcore/upload_file/session/file"]:
            if time.monotonic() > deadline or counts["204"] == 400:
                break
            counts[f"{put(port, url, bytes(2**20 - 1000))}"] += 1
    return counts


def put(port: int, url: str, content: bytes, token: str = "2|00000000|00000000|0") -> int:
    """Upload a file as a browser does; the status of the answer, or 0 without one."""
    border = "border"
    head = f'--{border}\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{border}--\r\n".encode()
    connection = HTTPConnection(HOST, port, timeout=10)
    try:
        headers = {
            "Content-Type": f"multipart/form-data; boundary={border}",
            "Cookie": f"_streamlit_xsrf={token}",
            "X-Xsrftoken": token,
        }
        connection.request("PUT", url, body, headers)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


ATTACKS: dict[str, Callable[[int, float, str], Counter[str]]] = {
    attack.__name__: attack
    for attack in (
        uploads,
        flood,
        within_limits,
        come_and_go,
        deaf,
        large,
        unfinished,
    )
}


@contextmanager
def under_attack(name: str, port: int, seconds: float, source: str) -> Iterator[Counter[str]]:
    """Let an attack run in a process of its own; its counts are there at the end."""
    counts: Counter[str] = Counter()
    command = ["nice", sys.executable, __file__, "--only", name, str(port), str(seconds), source]
    with child(*command, stdout=subprocess.PIPE, env=os.environ) as process:
        yield counts
        told, _ = process.communicate(timeout=seconds + 60)
        counts.update(json.loads(told))


def page_seconds(port: int, page: str = "") -> float:
    """Seconds until another visitor sees a page; infinity if that takes half a minute."""
    began = time.monotonic()
    try:
        with Visitor(port, page=page, patience=30):
            return time.monotonic() - began
    except (AssertionError, *REFUSED):
        return float("inf")


def megabytes(server: Server) -> float:
    """Memory of the server without its training process."""
    return float(server.process.memory_info().rss / 2**20)


def measure(server: Server, name: str, seconds: float, source: str, calm: float = 10.0) -> dict:
    """Effects of an attack on another visitor who opens pages, and on the server."""
    before, most, pages = megabytes(server), 0.0, []
    with under_attack(name, server.port, seconds, source) as counts:
        deadline = time.monotonic() + seconds + 2
        while time.monotonic() < deadline:
            pages.append(page_seconds(server.port, "guide" if len(pages) % 2 else ""))
            most = max(most, megabytes(server))
            time.sleep(0.3)
    time.sleep(calm)
    after = min(page_seconds(server.port) for _ in range(3))
    return {
        "attack": name,
        "during": round(max(pages), 2),
        "pages": [round(p, 2) for p in pages],
        "after": round(after, 2),
        "megabytes": round(max(most, megabytes(server)) - before),
        **counts,
    }


@contextmanager
def training(port: int, link: str = TRAINING) -> Iterator[Visitor]:
    """A visitor whose experiment trains."""
    with Visitor(port, link, patience=120) as visitor:
        visitor.press("train")
        visitor.wait_for("the first steps", lambda: visitor.progress() > 0)
        yield visitor


def main() -> None:
    """Run all attacks, or the given ones, and print one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(ATTACKS)}; all without")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each attack")
    parser.add_argument("--same-address", action="store_true", help="as the other visitors")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        name, port, seconds, source = asked.attacks
        say(ATTACKS[name](int(port), float(seconds), source))
        return
    source = HOST if asked.same_address else FOREIGN
    for name in asked.attacks or ATTACKS:
        with hosted() as server:
            page_seconds(server.port)
            page_seconds(server.port, "guide")
            with training(server.port) as visitor:
                trainer = [p.pid for p in server.process.children()]
                step = visitor.progress()
                found = measure(server, name, asked.seconds, source)
                try:
                    visitor.watch(5)
                    found["trained on"] = visitor.progress() > step or finished(visitor)
                except REFUSED:
                    found["trained on"] = "its visitor was cut off"
                found["training process is the same"] = trainer == [
                    p.pid for p in server.process.children()
                ]
            say(found)


def say(found: dict | Counter[str]) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
