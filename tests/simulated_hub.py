"""A hub on this machine, which serves files in byte ranges and counts the bytes that it sends."""

import json
import re
import threading
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import huggingface_hub.file_download
import pytest


class Hub:
    """Models by name and revision, as files by name; and what was sent.

    Attributes:
        models: Content of files by their name, by revision, by the name of the model.
        gated: Names of models that nobody has the licence for.
        sent: Number of bytes sent, by the name of the file.
    """

    def __init__(self):
        self.models, self.gated, self.sent, self.requests = {}, set(), {}, []

    def add(self, name, files, revision="main"):
        """Add a model; what is not bytes is written as JSON."""
        raw = {n: x if isinstance(x, bytes) else json.dumps(x).encode() for n, x in files.items()}
        self.models.setdefault(name, {})[revision] = raw

    def answer(self, path):
        """Return the status, the code of an error, and the content."""
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|refs)/?(.*))?", path)
        is_listing = match is not None
        match = match or re.fullmatch(r"/([^/]+/[^/]+)/(resolve)/([^/]+)/(.+)", path)
        if match is None or match[1] not in self.models:
            return 401, "RepoNotFound", b""
        name, revisions = match[1], self.models[match[1]]
        if match[2] == "refs":
            refs = [{"name": r, "ref": f"refs/heads/{r}", "targetCommit": r} for r in revisions]
            return 200, "", json.dumps({"branches": refs, "tags": [], "converts": []}).encode()
        files = revisions.get(unquote(match[3] or "main"))
        if files is None:
            return 404, "RevisionNotFound", b""
        if is_listing:
            siblings = [{"rfilename": file} for file in files]
            sha = unquote(match[3] or "main")
            return 200, "", json.dumps({"id": name, "sha": sha, "siblings": siblings}).encode()
        if name in self.gated:
            return 401, "GatedRepo", b""
        file = unquote(match[4])
        return (200, "", files[file]) if file in files else (404, "EntryNotFound", b"")


@contextmanager
def simulated_hub(tmp_path):
    """Yield a hub that the library talks to instead of the real one, with an empty cache."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlsplit(self.path).path
            status, code, raw = hub.answer(path)
            wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if wanted and status == 200:
                start, end = int(wanted[1]), int(wanted[2]) + 1
                status, raw = (206, raw[start:end]) if start < len(raw) else (416, b"")
            if "/resolve/" in path:
                hub.requests.append((unquote(path.rpartition("/")[2]), len(raw)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("ETag", f'"{zlib.crc32(path.encode())}"')
            self.send_header("X-Repo-Commit", path.split("/resolve/")[-1].partition("/")[0])
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(raw)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            constants = huggingface_hub.constants
            patch.setattr(constants, "ENDPOINT", address)
            template = address + "/{repo_id}/resolve/{revision}/{filename}"
            patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
            patch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
            patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
            hub.address, hub.server = address, server
            yield hub
    finally:
        server.shutdown()
        server.server_close()
