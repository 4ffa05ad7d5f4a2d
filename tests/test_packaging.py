"""The wheel, its dependencies and its description, built from this checkout."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import attnkit
from attnkit.foundation.extras import EXTRAS, install_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = PROJECT["optional-dependencies"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("attnkit-*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def requirements(lines):
    """Return requirements by the name of their package as indexes write it."""
    return {canonicalize_name(one.name): one for one in map(Requirement, lines)}


def imported_packages(*patterns):
    """Return the modules of others that files of the repository import, with their packages."""
    modules = set()
    for path in (path for pattern in patterns for path in ROOT.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.partition(".")[0])
    modules -= {"attnkit", *(path.stem for path in (ROOT / "tests").iterdir())}
    packages = packages_distributions()
    return {
        module: set(map(canonicalize_name, packages.get(module, ())))
        for module in modules - sys.stdlib_module_names
    }


def pinned_version(requirement):
    """Return the version of a requirement that allows no other one."""
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", requirement
    return specifier.version


def test_the_wheel_holds_all_tracked_files_of_the_package(wheel):
    """Code, assets, examples and records, and nothing beside them, with the command and version."""
    listed = "git ls-files attnkit dashboard.py pages docs/lessons .streamlit/config.toml".split()
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expected = {p if p[:8] == "attnkit/" else f"attnkit/ui/app/{p}" for p in tracked.split()}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {"attnkit/ui/app/pages/lab.py", "attnkit/ui/assets/lab.js"} <= expected
    assert found == expected
    for name in ("dashboard.py", "pages/lab.py", ".streamlit/config.toml"):
        assert wheel.read(f"attnkit/ui/app/{name}") == (ROOT / name).read_bytes()
    folder = f"attnkit-{attnkit.__version__}.dist-info"
    entry_points = wheel.read(f"{folder}/entry_points.txt").decode()
    assert "[console_scripts]\nattnkit = attnkit.__main__:run_process" in entry_points
    metadata = wheel.read(f"{folder}/METADATA").decode()
    assert f"\nVersion: {attnkit.__version__}\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata


def test_every_dependency_is_pinned_within_its_range():
    """In requirements.txt, which also has pytest for the tests; optional ones in `dev`."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = requirements(line for line in lines if line and not line.startswith("#"))
    ranges = requirements(PROJECT["dependencies"])
    assert set(pinned) == set(ranges) | {"pytest"}
    for name, allowed in ranges.items():
        assert str(pinned[name].marker) == str(allowed.marker)
        assert any(one.operator == ">=" for one in allowed.specifier), name
    dev = requirements(OPTIONAL["dev"])
    for extra in EXTRAS:
        ranges |= requirements(OPTIONAL[extra])
    for name, allowed in ranges.items():
        version = pinned_version((dev | pinned)[name])
        assert allowed.specifier.contains(version), f"{name}=={version} is not in {allowed}"
    assert str(dev["pytest"]) == str(pinned["pytest"])
    for name, requirement in (dev | requirements(OPTIONAL["docs"])).items():
        assert name == "attnkit" or pinned_version(requirement)


def test_dependencies_are_what_the_package_imports():
    """Each import is declared, and each dependency is imported; tests may import those of `dev`."""
    declared = requirements(PROJECT["dependencies"])
    optional = requirements(line for extra in EXTRAS for line in OPTIONAL[extra])
    imported = imported_packages("attnkit/**/*.py", "pages/*.py", "dashboard.py")
    assert {m for m, names in imported.items() if not names & {*declared, *optional}} == set()
    assert set(declared) - set().union(*imported.values()) == set()
    in_tests = imported_packages("tests/**/*.py")
    allowed = {*declared, *requirements(OPTIONAL["dev"])}
    assert {m for m, names in in_tests.items() if not names & allowed} == {"no_such_module"}


def test_the_documentation_lists_the_extras():
    """With their packages and what they download, as the messages say it."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for name, extra in EXTRAS.items():
        packages = ", ".join(f"`{one.partition('>')[0]}`" for one in OPTIONAL[name])
        row = f"| `{name}` | {extra.purpose} | {packages} | {extra.megabytes} MB |"
        assert row in page
        assert f"{extra.megabytes} MB" in install_hint(name)
    assert set(EXTRAS) == set(OPTIONAL) - {"dev", "docs"}
