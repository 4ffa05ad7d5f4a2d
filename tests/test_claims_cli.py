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


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch, untouched):
    """Register two small claims alone, ship nothing, and return the folder of their cache."""
    arms = tuple(arm(variant, schedules=("constant",), **TINY) for variant in ("Q=K", "QKV"))
    CLAIMS.clear()
    CLAIMS.update({name: small_claim(name, arms=arms, n_seeds=6) for name in ("first", "second")})
    cache = tmp_path / "cache"
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_: cache)
    monkeypatch.setattr(record, "SHIPPED", tmp_path / "shipped.json")
    load_shipped.cache_clear()
    yield cache / "claims" / __version__
    load_shipped.cache_clear()


@pytest.fixture
def claims(run):
    """Run the command: `claims(*arguments)` gives its exit code, output and errors."""
    return functools.partial(run, "claims")


def untimed(text):
    """Return all claims of a JSON document without what depends on the clock."""
    return [{**one, "seconds": None} for one in json.loads(text)["claims"]]


@pytest.fixture
def shipped():
    """Ship evidence for the first claim."""
    evidence = made_up(CLAIMS["first"], MadeUp(QKV=1.0, Q_K=0.5))
    record.SHIPPED.write_text(Records.of([evidence]).to_json(), encoding="utf-8")
    return evidence


def test_claims_are_run_and_told_on_the_screen_or_in_a_file(claims, tmp_path):
    """A line for each as it goes, then the table; only those that are named, in order."""
    code, output, errors = claims()
    assert code == 0
    lines = [line for line in errors.splitlines() if not line.startswith("    ")]
    assert lines == ["1/2 first", "2/2 second"]
    assert errors.count("s of training") == 2
    assert [line.split()[0] for line in output.splitlines()[:3]] == ["claim", "first", "second"]
    (told,) = untimed(claims("first", "--json", "-")[1])
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
    for reached in (["first"], ["first", "second"]):
        _, output, errors = claims("--quick", "--json", "-", "--table", str(page))
        told, is_whole = untimed(output), len(reached) == 2
        assert [(one["id"], one["first_seed"]) for one in told] == [(r, NEW_SEED) for r in reached]
        assert ("0 min: second." in errors) is not is_whole
        assert ("old" in page.read_text(encoding="utf-8")) is not is_whole
    named = claims("second", "first", "second", "--quick", "--fresh", "--json", "-")
    assert [told["id"] for told in untimed(named[1])] == ["second", "first"]


def test_what_is_shipped_is_listed_and_written(claims, shipped, tmp_path, monkeypatch):
    """Nothing is trained; what is not shipped is told beside the table."""
    monkeypatch.setattr(gathering, "train", pytest.fail)
    code, output, errors = claims("--list")
    assert code == 0
    assert output == readable(load_shipped()) + "\n"
    assert errors.strip().endswith(" second")
    page, file = tmp_path / "page.html", tmp_path / "page.md"
    file.write_text(f"# Before\n{BEGIN}\nold\n{END}\nAfter.\n", encoding="utf-8")
    assert claims("first", "--list", "--html", str(page), "--table", str(file))[0] == 0
    assert CLAIMS["first"].title in page.read_text(encoding="utf-8")
    table = to_markdown(load_shipped())
    assert file.read_text(encoding="utf-8") == f"# Before\n{BEGIN}\n{table}\n{END}\nAfter.\n"


def test_shipping_one_claim_keeps_the_others_and_shipping_all_replaces_them(claims, shipped):
    """A new claim needs no run of all others; what is shipped is read again as it was told."""
    for names, is_kept in ((["second"], True), ([], False)):
        code, output, _ = claims(*names, "--ship")
        load_shipped.cache_clear()
        found = load_shipped()
        assert (code, list(found)) == (0, list(CLAIMS))
        assert (found["first"].to_dict() == shipped.to_dict()) == is_kept
    assert output == readable(found) + "\n"


@pytest.mark.parametrize("how", [[], ["--fresh"]])
def test_an_interrupt_saves_what_is_finished_and_one_can_go_on(
    claims, tmp_path, monkeypatch, shipped, how
):
    """Exit code 130; the rest is trained another time, as if nothing had happened.

    Ctrl-C comes between two experiments, or while one trains, whose result is what was reached.
    """
    CLAIMS["second"] = replace(CLAIMS["second"], n_seeds=7)
    seeds, interrupted = [], [True]

    def counted(experiment, device="auto", progress=None):
        seeds.append(experiment.n_seeds)
        result = train(experiment, device, progress)
        if not interrupted[0] or experiment.n_seeds != 7:
            return result
        if not how:
            raise KeyboardInterrupt
        return Result(replace(result.snapshot, status="stopped"), result.parameters)

    monkeypatch.setattr(gathering, "train", counted)
    numbers, page, table = (tmp_path / name for name in ("numbers.json", "page.html", "page.md"))
    table.write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    before = record.SHIPPED.read_bytes(), table.read_bytes()
    assert claims("second", *how, "--ship", "--table", str(table))[:2] == (130, "")
    assert (record.SHIPPED.read_bytes(), table.read_bytes()) == before
    code, output, errors = claims(*how, "--json", str(numbers), "--html", str(page))
    assert (code, "Traceback" in errors, page.is_file()) == (130, False, True)
    assert [one["id"] for one in json.loads(numbers.read_text())["claims"]] == ["first"]
    assert output.splitlines()[1].startswith("first ")
    seeds.clear()
    interrupted[0] = False
    assert claims("--json", str(numbers))[0] == 0
    assert set(seeds) == {7}
    straight = untimed(claims("--fresh", "--json", "-")[1])
    assert set(seeds) == {4, 6, 7}  # tuning, too
    assert untimed(numbers.read_text(encoding="utf-8")) == straight


def test_bad_input_is_one_line(claims, small, tmp_path, monkeypatch):
    """It names what is wrong and what is allowed, before anything is trained."""
    monkeypatch.setattr(gathering, "train", pytest.fail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text("# No marks\n", encoding="utf-8")

    def refuse(arguments, begins):
        code, output, errors = claims(*arguments)
        assert (code, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.startswith(f"attnkit: error: {begins}")

    for arguments, begins in (
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
    ):
        refuse(arguments, begins)
    with monkeypatch.context() as patched:
        patched.setenv("ATTNKIT_MODULES", "json")  # claims of one's own cannot be shipped
        refuse(["--ship"], "--ship: allowed without ")
    cache = small.parent.parent
    cache.write_text("a file, not a folder", encoding="utf-8")
    for how in ([], ["--fresh"]):
        refuse(["first", *how], f"{cache.parent}")
    cache.unlink()
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 0)  # bytes of memory
    code, output, errors = claims("first")
    assert (code, output) == (2, "")
    assert errors.splitlines()[-1].startswith("attnkit: error: ")
    assert not record.SHIPPED.exists()
