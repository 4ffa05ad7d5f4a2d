"""The image as far as its text tells; `hosted.py` starts its command without a container engine."""

import os
import re
import shlex
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from dockerfile import ROOT, read
from streamlit import config

from attnkit.model.kernel.cache import SHIPPED
from attnkit.service.server import ServerSettings

PRODUCTION = {
    "server.headless": True,
    "server.enableCORS": True,
    "server.enableXsrfProtection": True,
    "server.fileWatcherType": "none",
    "client.showErrorDetails": "none",
    "client.toolbarMode": "viewer",
    "browser.gatherUsageStats": False,
    "logger.hideWelcomeMessage": True,  # asks the network for its own address otherwise
}


@pytest.fixture(scope="module")
def image():
    """The Dockerfile of this repository."""
    return read()


def known_options():
    """Every option of the installed Streamlit."""
    return config.get_config_options()


def test_every_option_of_the_command_is_one_of_streamlits(image):
    """A misspelt or renamed option would stop the server, or say nothing and do nothing."""
    assert set(image.options) <= set(known_options())


def test_the_command_sets_what_a_public_server_needs(image):
    """Protections on, nothing that watches files, asks the network or tells visitors of errors."""
    given = {name: image.options[name] for name in PRODUCTION}
    assert given == {name: str(value).lower() for name, value in PRODUCTION.items()}


@pytest.mark.parametrize(
    "name", ["server.maxUploadSize", "server.maxMessageSize", "server.maxWidgetStateSize"]
)
def test_what_visitors_send_is_small(image, name):
    """Streamlit's own limits let one visitor fill the memory of a small machine."""
    assert int(image.options[name]) < known_options()[name].default_val


def test_the_command_starts_a_file_that_is_copied(image):
    """`streamlit run` of what the image has."""
    assert image.command[:4] == ["python", "-m", "streamlit", "run"]
    file = Path(image.command[4])
    assert (ROOT / file).is_file()
    assert {str(file), *map(str, file.parents)} & {source for source, _ in image.copied}


def test_environment_names_settings_of_ours_and_of_streamlit(image):
    """No variable that nobody reads."""
    given = image.environment
    ours = {name for name in given if name.startswith("ATTNKIT_")}
    theirs = {name for name in given if name.startswith("STREAMLIT_")}
    assert ours <= {SHIPPED, *(f"ATTNKIT_{name.upper()}" for name in ServerSettings.model_fields)}
    assert theirs <= {option.env_var for option in known_options().values()}
    assert ServerSettings.of(given).hosted


def test_the_kernel_is_compiled_where_the_server_looks_for_it(image):
    """By root, after the code was copied, and so that the server's user may read it."""
    place = image.environment[SHIPPED]
    assert place.startswith("/app/")
    kinds = [(kind, text) for kind, text in image.instructions if kind in ("COPY", "RUN", "USER")]
    compiling = next(i for i, (_, text) in enumerate(kinds) if "-m attnkit.model.kernel" in text)
    assert ("COPY", "attnkit attnkit/") in kinds[:compiling]
    assert ("USER", "1000:1000") in kinds[compiling:]
    assert f'NUMBA_CACHE_DIR="${SHIPPED}"' in kinds[compiling][1]
    assert f'chmod --recursive a+rX "${SHIPPED}"' in kinds[compiling][1]


def test_data_folder_belongs_to_the_user_who_is_not_root(image):
    """A fixed number, so that a volume keeps its owner; the folder of the store is the volume."""
    assert image.all("USER") == ["1000:1000"]
    assert any("--uid 1000" in text and "/data" in text for text in image.all("RUN"))
    assert image.all("VOLUME") == [image.environment["ATTNKIT_STORE"]]


def test_dependencies_come_before_the_code(image):
    """A change of the code must not install torch anew."""
    kinds = [(kind, text) for kind, text in image.instructions if kind in ("COPY", "RUN")]
    install = next(i for i, (_, text) in enumerate(kinds) if "--requirement" in text)
    before = {text for kind, text in kinds[:install] if kind == "COPY"}
    assert before == {"requirements.txt pyproject.toml ./"}


def test_index_of_torch_is_an_argument_and_no_address_stands_here(image):
    """Whoever builds says where the CPU build is; docs/hosting.md tells how."""
    assert image.all("ARG") == ["TORCH_INDEX="]
    assert "://" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_all_that_is_copied_is_there_and_not_ignored(image):
    """What .dockerignore leaves in is what the Dockerfile copies."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert let_in == {source for source, _ in image.copied}
    assert all((ROOT / source).exists() for source in let_in)


def test_everything_that_a_page_imports_is_copied(image):
    """Every Python file of the repository but the tests is in the image."""
    folders = {Path(source).parts[0] for source, _ in image.copied}
    found = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    code = {Path(name).parts[0] for name in found.stdout.split()} - {"tests"}
    assert code <= folders


def test_the_image_installs_the_pinned_driver_of_postgresql(image):
    """The image can use PostgreSQL without being built anew."""
    (install,) = (run for run in image.all("RUN") if "postgres.txt" in run)
    program = shlex.split(install.partition("python -c ")[2])[0]
    listed = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    assert re.fullmatch(r"psycopg\[binary\]==[0-9.]+\n", listed)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_health_check_says_what_the_server_says(image, status, code):
    """0 well, 1 not, as Docker wants it; proxies of the environment are not asked."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    asked = []
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        command = [sys.executable, *image.health[1:]]
        environment = {
            **os.environ,
            "STREAMLIT_SERVER_PORT": str(server.server_port),
            "http_proxy": "http://127.0.0.1:1",
        }
        found = subprocess.run(command, env=environment, check=False)
        thread.join()
    assert image.health[0] == "python"
    assert (asked, found.returncode) == (["/_stcore/health"], code)


def test_health_check_fails_where_nobody_listens(image):
    """A server that has gone is not well."""
    command = [sys.executable, *image.health[1:]]
    environment = {**os.environ, "STREAMLIT_SERVER_PORT": "1"}
    found = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert found.returncode == 1
