"""Links on the pages: stored results, class links, Share, and the limits of a hosted copy."""

import itertools
import re

import pytest
from idle import idle_service, show, visit

from attnkit.experiment.experiment import Experiment, settings
from attnkit.experiment.links import GROUPS
from attnkit.service.store import ResultStore, Unavailable
from attnkit.tasks import TASKS
from attnkit.training import train
from attnkit.ui.storage import result_store

pytestmark = pytest.mark.server

BOOK = {"n_entries": 5, "n_names": 11, "n_values": 7}
TINY = Experiment(
    task="directed",
    sharing=["QKV", "K=V"],
    n_seeds=1,
    d_head=3,
    steps=2,
    batch_size=16,
    n_eval=16,
    **BOOK,
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy for oneself with a store of its own."""
    with idle_service(tmp_path_factory.mktemp("store")) as processes:
        yield processes


@pytest.fixture(scope="module")
def stored(copy):
    """The hash of a stored result."""
    result_store().put(*train(TINY).to_blobs())
    return TINY.hash


def told(element):
    """What a warning or an error says, without the backslashes that keep Markdown away."""
    return re.sub(r"\\(\W|_)", r"\1", element.value)


def keys(tab):
    """The user's keys of all widgets, but the pickers of the live area."""
    kinds = (tab.button, tab.number_input, tab.toggle, tab.selectbox, tab.button_group)
    found = {widget.key or "" for widget in itertools.chain(*kinds)}
    return {key for key in found if not re.match(r"$|(seed|layer)_", key)}


# stored results


def test_run_opens_a_stored_result_and_the_link_becomes_its_settings(stored):
    """Finished at once; nothing trains; what is hidden stays so."""
    tab = visit(run=stored)
    assert [told(warning) for warning in tab.warning] == []
    assert tab.session_state["lab"].experiment == TINY
    assert tab.query_params == TINY.to_params()
    assert tab.number_input(key="set_n_entries").value == 5
    assert tab.session_state["lab"].job.snapshot.experiment == TINY
    assert any(text.value.startswith("Trained earlier") for text in tab.markdown)
    assert tab.dataframe[0].value["sharing"].tolist() == ["QKV", "K=V"]
    tab = visit(run=stored, hide="settings")
    assert tab.query_params == {**TINY.to_params(), "hide": "settings"}
    assert not tab.number_input


def test_a_run_that_is_not_kept_is_told_and_the_lab_opens(copy, stored, monkeypatch):
    """All else at its defaults; also if the store is away."""
    for run, named in [
        ("<b>[x](y)</b>", "run: got '<b>[x](y)</b>', allowed sixteen digits"),
        ("0" * 16, f"run: got '{'0' * 16}', but no result of that name is kept here"),
        (stored, f"run: got '{stored}', but the database is away"),
    ]:
        if run == stored:

            def fail(*_):
                raise Unavailable("the database is away")

            monkeypatch.setattr(ResultStore, "experiment", fail)
        tab = visit(run=run)
        assert named in told(tab.warning[0])
        assert tab.session_state["lab"].experiment == Experiment()
        assert tab.query_params == {}
        assert not tab.button(key="train").disabled


def test_what_a_link_is_told_stays_until_the_visitor_acts(copy, monkeypatch):
    """The page draws itself again when examples have come; the warning is not lost by that."""
    once = iter([True])
    monkeypatch.setattr("attnkit.ui.task_examples.thumbnails_missing", lambda: next(once, False))
    tab = visit(v="1", steps="abc")
    assert "steps: got 'abc'" in told(tab.warning[0])
    assert not show(tab).warning


def test_a_thumbnail_that_comes_while_the_page_is_drawn_is_drawn(copy, monkeypatch):
    """The cards were drawn without it, so the page draws itself again."""
    drawn = []
    monkeypatch.setattr(
        "attnkit.ui.task_examples.thumbnail_examples", lambda: drawn.append(1) or {}
    )
    monkeypatch.setattr("attnkit.ui.task_examples.thumbnails_missing", lambda: not drawn)
    visit()
    assert len(drawn) == 2


# class links


@pytest.mark.parametrize(
    ("hide", "gone"),
    [
        ("n_entries,positions", {"set_n_entries", "set_positions"}),
        ("sharing", {"set_sharing"}),
        ("settings", {f"set_{name}" for name in settings("directed")} - {"set_earlier_steps"}),
        ("buttons", {"pause", "step", "reset", "new_seeds", "train_automatically", "quiet_mode"}),
        ("task", set()),
    ],
)
def test_a_class_link_hides_what_it_names_and_nothing_else(copy, hide, gone):
    """The experiment is the same, and its link keeps what is hidden."""
    tab, everything = visit(v="1", d_head="8", hide=hide), keys(visit(v="1", d_head="8"))
    assert "show_all" not in everything
    assert gone <= everything
    assert keys(tab) == everything - gone | {"show_all"}
    assert [told(warning) for warning in tab.warning] == []
    assert tab.query_params == {"v": "1", "d_head": "8", "hide": hide}
    assert tab.session_state["lab"].experiment == Experiment(d_head=8)
    components = {element.key for element in tab.get("bidi_component")}
    assert ("gallery" in components) == (hide != "task")
    assert any(TASKS["directed"].question in m.value for m in tab.markdown) == (hide == "task")


def test_what_is_under_more_can_be_hidden_together(copy):
    """The expander goes with it; names that nothing has are told and left out of the address."""
    tab = visit(v="1", hide="more,train,<b>")
    assert "set_n_eval" not in keys(tab)
    assert {"set_steps", "train"} <= keys(tab)
    assert "More" not in [expander.label for expander in tab.expander]
    assert "hide: got '<b>, train', allowed task, sharing" in told(tab.warning[0])
    assert tab.query_params == {"v": "1", "hide": "more"}


def test_hidden_settings_keep_the_value_of_the_link(copy):
    """Whatever else is changed, and in what is trained."""
    tab = visit(v="1", steps="70", n_entries="5", hide="steps,n_entries")
    for width in (4, 8):
        tab.number_input(key="set_d_head").set_value(width)
        show(tab)
    expected = Experiment(steps=70, n_entries=5, d_head=8)
    assert tab.session_state["lab"].experiment == expected
    assert tab.query_params == {**expected.to_params(), "hide": "n_entries,steps"}
    tab.button(key="train").click()
    assert show(tab).session_state["lab"].job.experiment == expected
    assert copy[0].begun[-1] == expected
    tab.button(key="stop").click()
    show(tab)


def test_all_controls_come_back_at_their_values(copy):
    """Nobody is locked out; the link says so, and the experiment stays."""
    tab = visit(v="1", steps="70", hide=",".join([*GROUPS, "steps"]))
    assert keys(tab) == {"train", "stop", "show_all", "all_pages", "projector"}
    tab.button(key="show_all").click()
    show(tab)
    assert tab.query_params == {"v": "1", "steps": "70"}
    assert tab.number_input(key="set_steps").value == 70
    of_dashboard = {"all_pages", "projector"}  # AppTest runs the page alone from the second run on
    assert keys(tab) | of_dashboard == keys(visit(v="1", steps="70"))


def test_the_full_size_changes_nothing_that_is_hidden(copy):
    """It is not offered then."""
    assert "full_size" in keys(visit(v="1", task="reverse", hide="buttons"))
    assert "full_size" not in keys(visit(v="1", task="reverse", hide="steps"))


def test_links_of_other_pages_keep_what_is_hidden(copy):
    """A class that reads the Guide comes back to its own Lab."""
    tab = visit(v="1", hide="settings")
    for page in ("guide", "variants"):
        show(tab.switch_page(f"pages/{page}.py"))
        links = [link.proto.query_string for link in tab.get("page_link")]
        assert any("hide=settings" in link for link in links), page


# Share


def shared(tab):
    """Open Share; the links it shows, without the code below."""
    tab.session_state["share"] = True
    show(tab)
    return [code.value for code in tab.code if not code.value.startswith("import")]


def test_share_shows_the_link_to_what_is_set_up_and_makes_class_links(copy):
    """The default experiment has a link, too; what is chosen by its label is named in the link."""
    assert shared(visit()) == ["?v=1"]
    tab = visit(v="1", d_head="8", sharing="QKV,Q=K", hide="settings")
    link = "?v=1&sharing=QKV,Q%3DK&d_head=8"
    assert shared(tab) == [link, f"{link}&hide=settings"]
    choice = tab.multiselect(key="hide_directed")
    assert {"Head width", "The choice of task"} <= set(choice.options)
    choice.set_value(["d_head", "task"])
    assert shared(tab) == [link, f"{link}&hide=task,d_head"]
    assert tab.query_params["hide"] == "settings"


def test_share_says_whether_the_result_is_kept(copy, stored):
    """Only then it opens finished."""
    notes = []
    for params in (TINY.to_params(), {**TINY.to_params(), "d_head": "4"}):
        tab = visit(**params)
        shared(tab)
        notes.append(any("opens finished" in caption.value for caption in tab.caption))
    assert notes == [True, False]


def test_share_tells_when_settings_do_not_fit(copy):
    """The link is then that of the address bar."""
    tab = visit(v="1", d_head="8")
    tab.number_input(key="set_n_names").set_value(6)
    assert shared(tab) == ["?v=1&d_head=8"]
    assert any("address of this page" in caption.value for caption in tab.caption)


# a hosted copy's limits


def test_a_link_beyond_the_limits_says_so_and_trains_nothing(tmp_path):
    """Whether or not there is a widget that could have stopped it."""
    large = {"batch_size": "512", "n_entries": "16", "n_heads": "8", "n_layers": "4"}
    with idle_service(tmp_path, hosted="true") as processes:
        for params, named in [
            ({"steps": "20000", "n_seeds": "20"}, "Steps: 20000 is not allowed. Allowed: at most"),
            ({"d_model": "256", "d_mlp": "512", "n_layers": "4"}, "Parameters: "),
            ({**large, "hide": "settings"}, "Memory: "),
        ]:
            tab = visit(v="1", **params)
            assert any(named in told(error) for error in tab.error)
            for key in ("train", "step", "reset", "new_seeds"):
                assert tab.button(key=key).disabled
                tab.button(key=key).proto.disabled = False  # a browser of somebody's own sends it
                tab.button(key=key).click()
                show(tab)
        assert [process.begun for process in processes] == [[]]
