"""Claims: what every registered claim holds, how wrong ones are refused, and their command."""

import functools
import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_claims import TINY, MadeUp, about, made_up, small_claim

import attnkit.claims
from attnkit.claims import CLAIMS
from attnkit.claims.base import arm
from attnkit.claims.measures import MEASURES
from attnkit.claims.statements import Statement, better, no_worse, worse
from attnkit.command.arguments import marks
from attnkit.evidence import gathering, record
from attnkit.evidence.presentation import readable, to_markdown
from attnkit.evidence.record import Records, load_shipped
from attnkit.experiment import experiment as limits
from attnkit.training import train
from attnkit.training.results import Result

BEGIN, END = marks("claims")


def test_every_claim_can_be_shown_trained_and_judged():
    """Both sides of a statement differ in nothing but the variant or the task."""
    files = {path.stem for path in Path(attnkit.claims.__path__[0]).glob("*.toml")}
    assert set(CLAIMS) == files
    assert len({claim.hash for claim in CLAIMS.values()}) == len(CLAIMS)
    assert len(load_shipped()) > len(CLAIMS) / 2  # whose hashes are known
    begins = {"held": "It holds", "did not hold": "It does not hold", "undecided": "Undecided"}
    along = {"accuracy_all_along", "loss_all_along", "steps_to_solve"}  # hang on evaluations
    for claim in CLAIMS.values():
        with about(claim):
            assert claim.prediction.startswith(begins[claim.expected])
            arms = (*claim.arms, *claim.confirmation[0])
            by_name = {one.name: one for one in arms}
            trained = {(one.experiment.hash, one.recipe_of, one.schedules) for one in arms}
            assert len(trained) == len(arms) == len(by_name)
            assert all(one.up_to.bit_count() == 1 >= one.tuned_at.bit_count() for one in arms)
            for statement in claim.statements:
                assert statement.low < statement.high
                assert math.isfinite(statement.low) or math.isfinite(statement.high)
                own = [by_name[name].experiment.training for name in statement.arms]
                assert len({(one.batch_size, one.n_eval) for one in own}) == 1
                assert len({by_name[name].base_steps for name in statement.arms}) == 1
                same_rhythm = len({one.evaluate_every for one in own}) == 1
                assert same_rhythm or statement.measure not in along
            for statement in (*claim.statements, *claim.confirmation[1]):
                assert statement.at <= by_name[statement.left].up_to
                assert statement.at.bit_count() == 1
                opposite, often = statement.opposite, statement.more_often
                assert len({statement.text, opposite, often}) == 3
                assert ("more often" in often) is not statement.measured.compares_means
            judged = {name for statement in claim.statements for name in statement.arms}
            judged |= {by_name[name].recipe_of for name in judged} - {""}
            assert claim.judged_arms == tuple(one for one in claim.arms if one.name in judged)


def test_a_claim_that_cannot_be_judged_is_refused():
    """The message names the field and what was given."""
    free, tied = arm("QKV", **TINY), arm("K=V", recipe_of="QKV", **TINY)
    for given_, message in (
        ({"statements": (worse("Q=V", "QKV"),)}, "statements: got the arm 'Q=V'"),
        ({"statements": ()}, "statements: got none"),
        ({"expected": "true"}, "expected: got 'true'"),
        ({"arms": (free, arm("Q=K", "QKV", **TINY))}, "arms: got 'QKV' twice"),
    ):
        with pytest.raises(ValueError, match=message):
            small_claim(**given_)
    for taken in ("Q=V", "K=V", "Q=K"):  # what is not there, what takes another's, and its own
        with pytest.raises(ValueError, match=f"recipe_of: got '{taken}'"):
            small_claim(arms=(free, tied, arm("Q=K", recipe_of=taken, **TINY)))
    for builder, measure in product((worse, better, no_worse), ("asymmetry", "speed")):
        with pytest.raises(ValueError, match=f"measure: got '{measure}'"):
            builder("Q=K", "QKV", measure=measure)
    four = {"low": 0, "second_left": "K=V", "second_right": "Q=K"}
    for wrong in ({"low": 0}, {"right": "QKV"}, {"right": "QKV", **four}, {"measure": "speed"}):
        with pytest.raises(ValueError, match="measure: got "):
            Statement("It is so", "It is not so", "Q=K", **wrong)
        Statement("It is so", "It is not so", "Q=K", **{**wrong, "measure": "loss"})


@given(
    by=st.integers(0, 97).map(lambda hundredths: hundredths / 100),
    gain=st.integers(-197, 197).map(lambda steps: steps / 200),
    measure=st.sampled_from([name for name, measure in MEASURES.items() if measure.better]),
)
def test_builders_want_what_they_say(by, gain, measure):
    """A gain is a higher accuracy or a lower loss: beyond the amount, and not at it."""
    difference = MEASURES[measure].better * gain
    for builder, wanted in ((worse, gain < -by), (better, gain > by), (no_worse, gain > -by)):
        statement = builder("a", "b", by, measure=measure)
        assert (statement.left, statement.right, statement.measure) == ("a", "b", measure)
        assert (statement.low < difference < statement.high) == wanted


def test_hashes_tell_what_decides_a_verdict_and_what_was_predicted_but_no_words():
    """Settings, variants, limits, measures and seeds; a prediction has a hash of its own."""
    same = {"left": "Q=K", "right": "QKV", "unable": True}
    compared = {"by": 0.07, "unable": False, "right": "K=V", "measure": "loss", "at": 2}
    claim = small_claim()
    changes = [
        {},
        {"n_seeds": 11},
        *({"statements": (worse(**{**same, name: v}),)} for name, v in compared.items()),
        *(
            {"arms": (*claim.arms[:2], last)}
            for last in (
                arm("QKV", **{**TINY, "steps": 7}),
                arm("QKV unit_key", "QKV", **TINY),
                arm("QKV", recipe_of="Q=K", **TINY),
                arm("QKV", up_to=2, **TINY),
            )
        ),
    ]
    assert len({small_claim(**changed).hash for changed in changes}) == len(changes)
    predicted = {"prediction": "None.", "expected": "did not hold", "seen": "an earlier run"}
    texts = ("title", "question", "source", "says", "seen_note", "reason", "family")
    words = dict.fromkeys(texts, "Another.")
    words |= {"statements": (replace(claim.statements[0], text="Q=K falls behind"),)}
    assert small_claim(**words, **predicted).hash == claim.hash
    assert small_claim(**words, n_seeds=11).prediction_hash == claim.prediction_hash
    for name, value in predicted.items():
        assert small_claim(**{name: value}).prediction_hash != claim.prediction_hash


OWN = """
title = "A claim of my own"
question = "Does K=V do?"
source = "me"
says = "It does."
prediction = "It holds."
expected = "held"
arms = [{ variant = "QKV" }, { variant = "K=V" }]

[[statements]]
no_worse = ["K=V", "QKV"]

[common]
""" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in TINY.items())


@pytest.mark.usefixtures("untouched")
def test_a_claim_of_ones_own_is_listed_and_run(tmp_path, run):
    """It is a file in TOML like those that ship; another claim of the same id would hide it."""
    path = tmp_path / "mine.toml"
    path.write_text(OWN, encoding="utf-8")
    assert "nothing is shipped for mine" in run("claims", "--list", str(path))[2]
    code, output, errors = run("claims", "--list", str(path))
    assert (code, output) == (2, "")
    assert "id: 'mine' is taken" in errors
    code, output, _ = run("claims", "--quick", "--fresh", "mine")
    assert code == 0
    assert "mine " in output


@pytest.mark.usefixtures("untouched")
def test_a_file_with_a_wrong_field_is_refused_in_one_line(tmp_path, run):
    """The message names the file, the field, what was given and what is allowed."""
    path = tmp_path / "mine.toml"
    for old, new, *named in (
        ('title = "A claim of my own"\n', "", "the field 'title' is missing"),
        ('"It does."', "5", "says: got 5, allowed a valid string"),
        ("says", "sais", "the field 'sais'", "did you mean says?"),
        ('"held"', '"true"', "expected: got 'true', allowed 'held', 'did not hold' or 'undecided'"),
        ("question", 'family = "Mine"\nquestion', "family: got 'Mine'", "'Our own'"),
        ("question", 'conditions = ["layer"]\nquestion', "got 'layer'", "'layers'"),
        ('"K=V" }', '"K=W" }', "K=W"),
        ('{ variant = "K=V" }', "5", "arms 2: got 5, allowed a table"),
        ('{ variant = "K=V" }', '{ variant = "K=V", up_to = "x" }', "arms 2: up_to: got 'x'"),
        (
            '{ variant = "K=V" }',
            '{ variant = "K=V", settings = {} }',
            "arms 2: got the field 'settings'",
        ),
        ("n_entries", "n_entrys", "n_entrys", "n_entries"),
        ("no_worse", "equal", "statements 1: got no comparison, allowed one of worse, no_worse"),
        ('["K=V", "QKV"]', '["K=V"]', "statements 1: the field 'right' is missing"),
        ('["K=V", "QKV"]', '"K=V"', "statements 1: no_worse: got 'K=V', allowed a list"),
        ('["K=V", "QKV"]', '["K=V", "QVK"]', "toml: statements: got the arm 'QVK', allowed QKV"),
        ('["K=V", "QKV"]', '["K=V", "QKV", "a", "b", "c"]', "no_worse: got [", "a list of up to"),
        ('["K=V", "QKV"]', '["K=V", "QKV"]\nwithin = 1', "the field 'within', allowed", "by"),
        ('["K=V", "QKV"]', '["K=V", "QKV"]\nmeasure = "speed"', "measure: got 'speed'"),
        ("[[statements]]", "[statements]", "statements: got", "allowed a list of tables"),
        ("[common]", "[common", "it is not TOML"),
    ):
        path.write_text(OWN.replace(old, new, 1), encoding="utf-8")
        code, output, errors = run("claims", "--list", str(path))
        assert (code, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.startswith("attnkit: error: mine.toml: ")
        assert [one for one in named if one not in errors] == [], errors


@pytest.fixture
def small(tmp_path, monkeypatch, untouched):
    """Register two small claims alone, ship nothing, and cache below a folder of their own."""
    arms = tuple(arm(variant, schedules=("constant",), **TINY) for variant in ("Q=K", "QKV"))
    CLAIMS.clear()
    CLAIMS.update({name: small_claim(name, arms=arms, n_seeds=6) for name in ("first", "second")})
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_: tmp_path / "cache")
    monkeypatch.setattr(record, "SHIPPED", tmp_path / "shipped.json")
    load_shipped.cache_clear()
    yield
    load_shipped.cache_clear()


@pytest.fixture
def claims(run, small):
    """Run the command: `claims(*arguments)` gives its exit code, output and errors."""
    return functools.partial(run, "claims")


def untimed(text):
    """Return all claims of a JSON document without what depends on the clock."""
    return [{**one, "seconds": None} for one in json.loads(text)["claims"]]


@pytest.fixture
def shipped(small):
    """Ship evidence for the first claim."""
    evidence = made_up(CLAIMS["first"], MadeUp(QKV=1.0, Q_K=0.5))
    record.SHIPPED.write_text(Records.of([evidence]).to_json(), encoding="utf-8")
    return evidence


def test_what_is_shipped_is_listed_written_and_replaced(claims, shipped, tmp_path, monkeypatch):
    """Nothing is trained for a list. One new claim keeps the others; all replace all."""
    file = tmp_path / "page.md"
    file.write_text(f"# Before\n{BEGIN}\nold\n{END}\nAfter.\n", encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr(gathering, "train", pytest.fail)
        code, output, errors = claims("--list", "--table", str(file))
    assert (code, output) == (0, readable(load_shipped()) + "\n")
    assert errors.strip().endswith(" second")
    table = to_markdown(load_shipped())
    assert file.read_text(encoding="utf-8") == f"# Before\n{BEGIN}\n{table}\n{END}\nAfter.\n"
    for names, is_kept in ((["second"], True), ([], False)):
        code, output, _ = claims(*names, "--ship")
        load_shipped.cache_clear()
        found = load_shipped()
        assert (code, list(found)) == (0, list(CLAIMS))
        assert (found["first"].to_dict() == shipped.to_dict()) == is_kept
    assert output == readable(found) + "\n"
    (told,) = untimed(claims("first", "--quick", "--first-seed", "17", "--json", "-")[1])
    assert [told[name] for name in ("id", "first_seed", "seeds", "quick")] == ["first", 17, 6, True]


def test_an_interrupt_saves_what_is_finished_and_one_can_go_on(
    claims, tmp_path, monkeypatch, shipped
):
    """Exit code 130; the rest is trained another time, as if nothing had happened.

    Ctrl-C comes between two experiments, or while one trains, whose result is what was reached.
    """
    CLAIMS["second"] = replace(CLAIMS["second"], n_seeds=7)
    seeds, ends = [], [KeyboardInterrupt, None]

    def counted(experiment, device="auto", progress=None):
        seeds.append(experiment.n_seeds)
        result = train(experiment, device, progress)
        if not ends or experiment.n_seeds != 7:
            return result
        if (end := ends.pop(0)) is not None:
            raise end
        return Result(replace(result.snapshot, status="stopped"), result.parameters)

    monkeypatch.setattr(gathering, "train", counted)
    numbers, table = (str(tmp_path / name) for name in ("numbers.json", "page.md"))
    Path(table).write_text(f"{BEGIN}\nold\n{END}\n", encoding="utf-8")
    before = record.SHIPPED.read_bytes(), Path(table).read_bytes()
    assert claims("second", "--ship", "--table", table)[:2] == (130, "")
    assert (record.SHIPPED.read_bytes(), Path(table).read_bytes()) == before
    code, output, errors = claims("--json", numbers)
    assert (code, "Traceback" in errors) == (130, False)
    assert [one["id"] for one in untimed(Path(numbers).read_text(encoding="utf-8"))] == ["first"]
    assert output.splitlines()[1].startswith("first ")
    seeds.clear()
    assert claims("--json", numbers)[0] == 0
    assert set(seeds) == {7}
    straight = untimed(claims("--fresh", "--json", "-")[1])
    assert set(seeds) == {4, 6, 7}  # tuning, too
    assert untimed(Path(numbers).read_text(encoding="utf-8")) == straight


def test_bad_input_is_one_line(claims, tmp_path, monkeypatch):
    """It names what is wrong, before anything is trained and shipped."""
    monkeypatch.setattr(gathering, "train", pytest.fail)
    page = tmp_path / "page.md"
    page.write_text("# No marks\n", encoding="utf-8")
    marked = tmp_path / "marked.md"
    marked.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    for arguments, named, settings in (
        (["third"], "claim", {}),
        (["--first-seed", "800001"], "--first-seed", {}),
        (["--minutes", "5"], "--minutes", {}),
        (["--quick", "--list", "--minutes", "5"], "--minutes", {}),
        (["--quick", "--minutes", "0"], "--minutes", {}),
        (["--ship", "--quick"], "--ship", {}),
        (["--ship"], "--ship", {"ATTNKIT_MODULES": "json"}),  # claims of one's own are not shipped
        (["--table", str(page)], "--table", {}),  # it has no place for the table
        (["--json", str(marked), "--table", str(marked)], "--table", {}),
    ):
        with monkeypatch.context() as patched:
            for name, value in settings.items():
                patched.setenv(name, value)
            code, output, errors = claims(*arguments)
        assert (code, output, errors.count("\n")) == (2, "", 1), errors
        assert errors.startswith(f"attnkit: error: {named}: ")
    monkeypatch.setattr(limits, "_MOST_AT_ONCE", 0)  # bytes of memory
    code, output, errors = claims("first")
    assert (code, output, "attnkit: error: " in errors) == (2, "", True)
    assert not record.SHIPPED.exists()
