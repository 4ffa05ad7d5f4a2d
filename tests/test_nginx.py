"""nginx with the lines of docs/hosting.md, in front of the guard of a hosted copy."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest
import uvicorn
from proxy import FOLDER, HOST, changed, free_ports, running, trusted_by
from starlette.datastructures import Headers
from websockets.sync.client import connect

from attnkit.service.server import server_settings
from attnkit.ui.server.guard import Guard

SITE = "class.example.org"
"""Name of the machine in docs/hosting.md."""

pytestmark = pytest.mark.server


async def told(scope, receive, send):
    """Tell a WebSocket what its request was, as Streamlit would see it."""
    await receive()
    await send({"type": "websocket.accept"})
    text = json.dumps([scope["path"], Headers(scope=scope)["host"]])
    await send({"type": "websocket.send", "text": text})
    await send({"type": "websocket.close", "code": 1000})


@pytest.fixture
def guarded(monkeypatch):
    """A guard that believes nginx, and the port on which it listens."""
    monkeypatch.setenv("ATTNKIT_HOSTED", "true")
    monkeypatch.setenv("ATTNKIT_ADDRESS_HEADER", "X-Forwarded-For")
    server_settings.cache_clear()
    (port,), guard = free_ports(1), Guard(told, "'self'")
    options = uvicorn.Config(guard, HOST, port, lifespan="off", proxy_headers=False, log_level=50)
    server = uvicorn.Server(options)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield guard, port
    server.should_exit = True
    thread.join()


@pytest.mark.long(seconds=2)
@pytest.mark.skipif(
    not (shutil.which("nginx") or os.environ.get("CI")),
    reason="no nginx on this machine (Debian's package `nginx-light`)",
)
def test_the_lines_for_nginx_pass_on_what_the_guard_needs(guarded, tmp_path):
    """The path is taken away, the port stays, and a forged address is replaced."""
    (guard, upstream), (port,) = guarded, free_ports(1)
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    command += f" -keyout {key} -out {certificate}"
    command += f" -subj /CN={SITE} -addext subjectAltName=DNS:{SITE}"
    subprocess.run(command.split(), check=True, capture_output=True)
    page = (FOLDER.parent / "hosting.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        lines = f"{kind}_temp_path {tmp_path}/{kind};\n{lines}"
    text = f"daemon off;\npid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{lines}}}\n"
    (tmp_path / "lines").write_text(text, encoding="utf-8")
    changes = {
        "listen 443": f"listen {HOST}:{port}",
        "/etc/ssl/class.example.org.pem": str(certificate),
        "/etc/ssl/private/class.example.org.key": str(key),
        "127.0.0.1:8501": f"{HOST}:{upstream}",
    }
    configuration = changed(tmp_path / "lines", changes, tmp_path)
    with running(["nginx", "-c", configuration, "-e", "stderr"], tmp_path):
        trusted = trusted_by(port, certificate, tmp_path, SITE)

        with connect(
            f"wss://{SITE}:{port}/attn/_stcore/stream",
            sock=socket.create_connection((HOST, port), 10),
            ssl=trusted,
            server_hostname=SITE,
            origin=f"https://{SITE}:{port}",
            additional_headers={"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"},
            proxy=None,
        ) as connection:
            seen = json.loads(connection.recv())
        # Streamlit refuses a page whose origin is another one than the host.
        assert seen == ["/_stcore/stream", f"{SITE}:{port}"]
        assert list(guard._addresses) == [HOST]
