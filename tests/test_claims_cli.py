"""The command `claims`: what it prints and writes, its exit codes, and how it goes on."""

import functools
import json
from dataclasses import replace

import platformdirs
import pytest
from small_claims import TINY, MadeUp, made_up, small_claim

from attnkit import __version__
from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.command import claims as command
from attnkit.command.outputs import marks
from attnkit.evidence import gathering, record
from attnkit.evidence.listing import readable, to_markdown
from attnkit.evidence.quick import NEW_SEED
from attnkit.evidence.record import Records, load_shipped
from attnkit.evidence.trials import FIRST_SEED
from attnkit.experiment import memory as limits
from attnkit.training import train
from attnkit.training.results import Result

BEGIN, END = marks("claims")
ARMS = tuple(arm(variant, schedules=("constant",), **TINY) for variant in ("Q=K", "QKV"))
"""Arms that are tuned in a moment."""


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch, untouched):
    """Register two small claims alone, ship nothing, and return the folder of their cache."""
    CLAIMS.clear()
    CLAIMS.update({name: small_claim(name, arms=ARMS, n_seeds=6) for name in ("first", "second")})
    cache = tmp_path / "cache"
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_: cache)
    monkeypatch.setattr(record, "SHIPPED", tmp_path / "shipped.json")
    load_shipped.cache_clear()
    yield cache / "claims" / __version__
    load_shipped.cache_clear()


@pytest.fixture
def trained(monkeypatch):
    """Return what is trained, in its order."""
    found = []

    def counted(experiment, device="auto", progress=None):
        found.append(experiment)
        return train(experiment, device, progress)

    monkeypatch.setattr(gathering, "train", counted)
    return found


@pytest.fixture
def shipped():
    """Ship evidence for the first claim."""
    evidence = made_up(CLAIMS["first"], MadeUp(QKV=1.0, Q_K=0.5))
    record.SHIPPED.write_text(Records.of([evidence]).to_json(), encoding="utf-8")
    return evidence


@pytest.fixture
def claims(run):
    """Run the command: `claims(*arguments)` gives its exit code, output and errors."""
    return functools.partial(run, "claims")


def told_in(answer):
    """Return the claims of JSON on the screen, but not how long they took."""
    code, output, _ = answer
    assert code == 0
    return untimed(output)


def untimed(text):
    """Return all claims of a JSON document without what depends on the clock."""
    return [{**one, "seconds": None} for one in json.loads(text)["claims"]]


# what it prints and writes


def test_claims_are_run_and_told_on_the_screen_or_in_a_file(claims, tmp_path):
    """A line for each as it goes, then the table; only those that are named, in order."""
    code, output, errors = claims()
    assert code == 0
    lines = [line for line in errors.splitlines() if not line.startswith("    ")]
    assert lines == ["1/2 first", "2/2 second"]
    assert errors.count("s of training") == 2
    assert [line.split()[0] for line in output.splitlines()[:3]] == ["claim", "first", "second"]
    told = told_in(claims("second", "first", "second", "--quick", "--json", "-"))
    assert [one["id"] for one in told] == ["second", "first"]
    (told,) = told_in(claims("first", "--json", "-"))
    assert (told["id"], told["seeds"], told["quick"]) == ("first", 6, False)
    assert (told["version"], told["first_seed"]) == (__version__, FIRST_SEED)
    path = tmp_path / "numbers.json"
    code, output, _ = claims("--quick", "--first-seed", "17", "--json", str(path))
    assert (code, output[:6]) == (0, "claim ")
    told = untimed(path.read_text(encoding="utf-8"))
    assert [(one["id"], one["first_seed"], one["seeds"], one["quick"]) for one in told] == [
        (name, 17, 6, True) for name in ("first", "second")
    ]


def test_the_quick_form_of_all_claims_ends_in_time_and_goes_on_if_it_is_repeated(
    claims, monkeypatch, tmp_path
):
    """It names what was not reached and writes no table without it; named claims are tested."""
    monkeypatch.setattr(command, "QUICK_MINUTES", 0)
    bench = MadeUp(QKV=1.0, Q_K=0.5)
    known = Records.of(made_up(claim, bench) for claim in CLAIMS.values())
    record.SHIPPED.write_text(known.to_json(), encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    ask = ("--quick", "--json", "-", "--table", str(page))
    part = claims(*ask)
    (told,) = told_in(part)
    assert (told["id"], told["first_seed"]) == ("first", NEW_SEED)
    for words in ("1 of 2 claims", "0 min: second.", "--table: not written"):
        assert words in part[2]
    assert "old" in page.read_text(encoding="utf-8")
    whole = claims(*ask)
    assert [told["id"] for told in told_in(whole)] == ["first", "second"]
    assert "0 min" not in whole[2]
    assert "old" not in page.read_text(encoding="utf-8")
    named = claims("second", "first", "--quick", "--fresh", "--json", "-")
    assert [told["id"] for told in told_in(named)] == ["second", "first"]


def test_what_is_shipped_is_listed_and_written(claims, trained, shipped, tmp_path):
    """Nothing is trained; what is not shipped is told beside the table."""
    code, output, errors = claims("--list")
    assert code == 0
    assert output == readable(load_shipped()) + "\n"
    assert errors.strip().endswith(" second")
    page, file = tmp_path / "page.html", tmp_path / "page.md"
    file.write_text(f"# Before\n{BEGIN}\nold\n{END}\nAfter.\n", encoding="utf-8")
    assert claims("first", "--list", "--html", str(page), "--table", str(file))[0] == 0
    written = page.read_text(encoding="utf-8")
    assert written.lower().startswith("<!doctype html>")
    assert CLAIMS["first"].title in written
    table = to_markdown(load_shipped())
    assert file.read_text(encoding="utf-8") == f"# Before\n{BEGIN}\n{table}\n{END}\nAfter.\n"
    assert trained == []


def test_shipping_one_claim_keeps_the_others_and_shipping_all_replaces_them(claims, shipped):
    """A new claim needs no run of all others; what is shipped is read again as it was told."""
    for names, is_kept in ((["second"], True), ([], False)):
        code, output, _ = claims(*names, "--ship")
        load_shipped.cache_clear()
        found = load_shipped()
        assert (code, list(found)) == (0, list(CLAIMS))
        assert (found["first"].to_dict() == shipped.to_dict()) == is_kept
    assert output == readable(found) + "\n"


# going on


def interrupts(result):
    """Ctrl-C while it trains: the result is what was reached."""
    return Result(replace(result.snapshot, status="stopped"), result.parameters)


def raises(_):
    """Ctrl-C between two experiments."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("how", "ctrl_c"), [([], raises), (["--fresh"], interrupts)])
def test_an_interrupt_saves_what_is_finished_and_one_can_go_on(
    claims, tmp_path, monkeypatch, shipped, small, how, ctrl_c
):
    """Exit code 130; the rest is trained another time, as if nothing had happened."""
    CLAIMS["second"] = small_claim("second", arms=ARMS, n_seeds=7)
    seeds, interrupted = [], [True]

    def counted(experiment, device="auto", progress=None):
        seeds.append(experiment.n_seeds)
        result = train(experiment, device, progress)
        return ctrl_c(result) if interrupted[0] and experiment.n_seeds == 7 else result

    monkeypatch.setattr(gathering, "train", counted)
    numbers, page, table = (tmp_path / name for name in ("numbers.json", "page.html", "page.md"))
    table.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    before = record.SHIPPED.read_bytes(), table.read_bytes()
    assert claims("second", *how, "--ship", "--table", str(table))[:2] == (130, "")
    assert (record.SHIPPED.read_bytes(), table.read_bytes()) == before
    code, output, errors = claims(*how, "--json", str(numbers), "--html", str(page))
    assert code == 130
    assert "Traceback" not in errors
    assert [one["id"] for one in json.loads(numbers.read_text())["claims"]] == ["first"]
    assert output.splitlines()[1].startswith("first ")
    assert page.is_file()
    seeds.clear()
    interrupted[0] = False
    begun = [path.name for path in small.iterdir() if "-second-" in path.name]
    assert len(begun) == 1
    assert claims("--json", str(numbers))[0] == 0
    assert set(seeds) == {7}
    straight = told_in(claims("--fresh", "--json", "-"))
    assert set(seeds) == {4, 6, 7}  # tuning, too
    assert untimed(numbers.read_text(encoding="utf-8")) == straight


# bad input


BAD = [
    (["third"], "claim: got 'third', allowed first, second"),
    (["--first-seed", "1.5"], "--first-seed: got '1.5'"),
    (["--first-seed", "800001"], "--first-seed: got '800001'"),
    (["--minutes", "5"], "--minutes: allowed with --quick"),
    (["--quick", "--list", "--minutes", "5"], "--minutes: allowed with --quick"),
    (["--quick", "--minutes", "0"], "--minutes: got '0'"),
    (["--ship", "--quick"], "--ship: allowed without --quick"),
    (["--json", "nowhere/n.json"], "--json: got 'nowhere/n.json'"),
    (["--html", "."], "--html: got '.'"),
    (["--table", "nowhere.md"], "--table: got 'nowhere.md'"),
    (["--table", "page.md"], "--table: "),  # it has no place for the table
    (["--device", "abacus"], "device: got 'abacus', allowed auto, cpu"),
]


def test_bad_input_is_one_line(claims, trained, tmp_path, monkeypatch):
    """It names what is wrong and what is allowed, before anything is trained."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text("# No marks\n", encoding="utf-8")
    for arguments, begins in BAD:
        refuse(claims(*arguments), begins)
    assert trained == []
    assert not record.SHIPPED.exists()


def refuse(answer, begins):
    """Assert that an answer is one line of bad input."""
    code, output, errors = answer
    assert (code, output, errors.count("\n")) == (2, "", 1), errors
    assert errors.startswith(f"attnkit: error: {begins}")


def test_what_cannot_be_shipped_kept_or_tested_is_bad_input(claims, trained, small, monkeypatch):
    """A claim of one's own, one that asks for too much, a cache that cannot be used."""
    with monkeypatch.context() as patched:
        patched.setenv("ATTNKIT_MODULES", "json")
        refuse(claims("--ship"), "--ship: allowed without ")
    cache = small.parent.parent
    cache.write_text("a file, not a folder", encoding="utf-8")
    for how in ([], ["--fresh"]):
        refuse(claims("first", *how), f"{cache.parent}")
    assert trained == []
    cache.unlink()
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 0)
    code, output, errors = claims("first")
    assert (code, output) == (2, "")
    assert errors.splitlines()[-1].startswith("attnkit: error: ")
    assert trained == []
