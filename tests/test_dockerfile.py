"""The image and its compose file as far as their texts tell; `hosted.py` starts what they say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from proxy import FOLDER, ROOT, read_dockerfile, services
from streamlit import config

from attnkit.foundation.process import MOST_OPEN_FILES
from attnkit.model.kernel.cache import SHIPPED
from attnkit.service.server import ServerSettings


@pytest.fixture(scope="module")
def image():
    """The Dockerfile of this repository."""
    return read_dockerfile()


def test_every_option_of_the_command_is_one_of_streamlits(image):
    """Protections that a public server needs are on, and limits below those of Streamlit."""
    known = config.get_config_options()
    words = (word[2:] for word in image.command if word.startswith("--"))
    given = dict(word.split("=", maxsplit=1) for word in words)
    assert set(given) <= set(known)
    assert given["server.enableXsrfProtection"] == given["server.enableCORS"] == "true"
    assert given["client.showErrorDetails"] == "none"
    for name in ("maxUploadSize", "maxMessageSize", "maxWidgetStateSize"):
        assert int(given[f"server.{name}"]) < known[f"server.{name}"].default_val


def test_environment_names_settings_of_ours_and_of_streamlit(image):
    """No variable that nobody reads, in the image or in the compose file."""
    given = {**image.environment, **services({"ATTNKIT_HOST": ""})["attnkit"]["environment"]}
    ours = {name for name in given if name.startswith("ATTNKIT_")}
    theirs = {name for name in given if name.startswith("STREAMLIT_")}
    assert ours <= {SHIPPED, *(f"ATTNKIT_{name.upper()}" for name in ServerSettings.model_fields)}
    assert theirs <= {option.env_var for option in config.get_config_options().values()}
    assert ServerSettings.of(given).hosted


def test_all_that_is_copied_is_there_and_everything_that_a_page_imports_is_copied(image):
    """The Dockerfile copies exactly what .dockerignore lets in: all Python but the tests."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert let_in == {source for source, _ in image.copied}
    assert all((ROOT / source).exists() for source in let_in)
    found = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    code = {Path(name).parts[0] for name in found.stdout.split()} - {"tests"}
    assert code <= {Path(source).parts[0] for source, _ in image.copied}


def test_the_image_installs_the_pinned_driver_of_postgresql(image):
    """The image can use PostgreSQL without being built anew."""
    (install,) = (run for run in image.all("RUN") if "postgres.txt" in run)
    program = shlex.split(install.partition("python -c ")[2])[0]
    listed = subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True)
    assert re.fullmatch(r"psycopg\[binary\]==[0-9.]+\n", listed)


def test_the_compose_file_is_of_this_image(image):
    """The volume, the port and the name that the Caddyfile uses; visitors only reach HAProxy."""
    found = services({"ATTNKIT_HOST": "class.example.org"})
    copy = found["attnkit"]
    assert (FOLDER / copy["build"]["context"]).resolve() == ROOT
    assert [f"{name}=" for name in copy["build"]["args"]] == image.all("ARG")
    assert [volume.partition(":")[2] for volume in copy["volumes"]] == image.all("VOLUME")
    assert copy["tmpfs"] == [image.environment["TMPDIR"]]
    assert [name for name in found if "ports" in found[name]] == ["haproxy"]
    assert "user" not in copy  # the image's, to whom /data belongs
    (port,) = image.all("EXPOSE")
    assert f"reverse_proxy attnkit:{port}\n" in (FOLDER / "Caddyfile").read_text(encoding="utf-8")
    assert port == image.environment["STREAMLIT_SERVER_PORT"]
    allowed = copy["environment"]["STREAMLIT_SERVER_ALLOWED_HOSTS"]
    assert allowed == found["caddy"]["environment"]["ATTNKIT_HOST"] == "class.example.org"
    for service in found.values():
        assert service["ulimits"]["nofile"] == MOST_OPEN_FILES
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
