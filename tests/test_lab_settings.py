"""Settings in the Lab while nothing trains: links, boxes, variants, tasks, Share and limits.

Also the words for states of a job that are hard to bring about.
"""

import random
import re
from types import SimpleNamespace
from urllib.parse import parse_qsl

import pytest
from finished import store_finished
from idle import PATIENCE, idle_service, show, visit
from kinds import tiny
from visiting import disabled, drawn, plain_text, press, status, switch, widget, widgets

from attnkit.experiment.experiment import Experiment, from_params, full_size
from attnkit.experiment.links import GROUPS
from attnkit.service.jobs import Job, Outlook
from attnkit.ui import watched_job
from attnkit.ui.lab.lab import Lab, shipped_example
from attnkit.ui.pages import lab as lab_page
from attnkit.ui.pages.lab import status_line
from attnkit.ui.server.service import result_store
from attnkit.variants.sharing import Sharing
from attnkit.variants.text import find

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def processes(tmp_path_factory):
    """The idle training processes of a copy for oneself."""
    with idle_service(tmp_path_factory.mktemp("store")) as started:
        yield started


def experiment_of(tab):
    """Return the experiment that is set up."""
    return tab.session_state["lab"].experiment


def write(tab, **values):
    """Set the widgets of settings."""
    for name, value in values.items():
        widget(tab, name).set_value(value)
    return show(tab)


def keys(tab):
    """Return the keys of all widgets, without the pickers of the live area and of every page."""
    found = {widget.key or "" for widget in (*tab.button, *widgets(tab))}
    of_the_page = "$|seed_|layer_|all_pages|projector|lang"
    return {key for key in found if not re.match(of_the_page, key)}


def test_a_link_and_the_widgets_follow_each_other(monkeypatch, seed):
    """A link sets every widget, also if it changes; a change enters the link until it is undone."""
    link = "v=1&task=phonebook&sharing=Q=K,Q=K=V,QKV n_heads=4 kv_heads=2&n_seeds=3&first_seed=17"
    link += "&equal=parameters&n_entries=5&n_values=13&d_model=48&n_heads=2&d_mlp=24&causal=true"
    tab = visit(**(link := dict(parse_qsl(f"{link}&steps=70&learning_rate=0.001"))))
    assert not tab.warning
    for name, value in from_params(link).settings().items():
        if name not in ("task", "earlier_steps"):
            assert widget(tab, name).value == value, name
    assert tab.query_params == link
    tab.query_params = before = {"v": "1", "task": "mutual", "d_head": "4"}
    assert experiment_of(show(tab)) == Experiment(task="mutual", d_head=4)
    assert (widget(tab, "d_head").value, drawn(tab, "gallery")["current"]) == (4, "mutual")
    defaults = {name: widget(tab, name).value for name in ("learning_rate", "causal", "sharing")}
    write(tab, learning_rate=0.01, causal=True, sharing=["Q=V", "QKV"])
    changes = {"learning_rate": "0.01", "causal": "true", "sharing": "QKV,Q=V"}
    assert tab.query_params == {**before, **changes}
    assert write(tab, **defaults).query_params == before
    monkeypatch.setattr("attnkit.ui.address.LATE_SECONDS", PATIENCE)
    draw, links, known = random.Random(seed), [before], 0
    for d_head in draw.choices([4, 5, 9], k=9):  # changed quickly, also back, on a slow connection
        known = draw.randint(known, len(links) - 1)  # the newest link that the browser has
        tab.query_params = links[known]
        links.append(dict(write(tab, d_head=d_head).query_params))
        assert links[-1] == {**before, "d_head": str(d_head)}


def test_a_broken_link_names_its_fields_once_and_takes_their_defaults():
    """All other fields are kept, and values of a link are no markup: they add no text or links."""
    wrong = "[free](https://example.org) **now** :red[x] <b>"
    tab = visit(v="1", steps=wrong, stepz="3", sharing="Q=K,Q-K=W", d_mlp="8")
    (warning,) = tab.warning
    for named in ("steps: got '[free]", "stepz: got '3'", "sharing: got 'Q-K=W'"):
        assert named in plain_text(warning).replace("\u2060", "")
    assert not re.search(r"(?<!\\)[\[\]*<>]", warning.value)
    assert experiment_of(tab) == from_params(tab.query_params) == Experiment(sharing="Q=K", d_mlp=8)
    assert not tab.button(key="train").disabled
    assert not show(tab).warning


def test_a_class_link_hides_what_it_names_and_nothing_else():
    """The experiment is the same; names that nothing has are told and leave the address."""
    everything = keys(visit(v="1", d_head="8"))
    buttons = {"pause", "step", "reset", "new_seeds", "train_automatically", "quiet_mode"}
    fields = {"set_sharing", "set_n_entries", "set_positions"}
    for hide, wrong in (("task,sharing,n_entries,positions", ""), ("more,buttons", ",train,<b>")):
        tab = visit(v="1", d_head="8", hide=hide + wrong)
        hidden, of_task = everything - keys(tab), "task" in hide
        assert hidden == fields if of_task else hidden >= buttons | {"set_batch_size"}
        assert keys(tab) >= {"train", "stop", "show_all"}
        assert ["'<b>, train'" in plain_text(one) for one in tab.warning] == [True] * bool(wrong)
        assert tab.query_params == {"v": "1", "d_head": "8", "hide": hide}
        assert ("gallery" in {one.key for one in tab.get("bidi_component")}) != of_task


def test_hidden_settings_keep_the_value_of_the_link(processes):
    """When others change, also in training; one button shows all of them."""
    tab = visit(v="1", steps="70", n_entries="5", hide="steps,n_entries")
    for width in (4, 8):
        write(tab, d_head=width)
    expected = Experiment(steps=70, n_entries=5, d_head=8)
    assert experiment_of(tab) == expected
    assert tab.query_params == {**expected.to_params(), "hide": "n_entries,steps"}
    press(tab, "train")
    assert processes[-1].begun[-1] == tab.session_state["lab"].job.experiment == expected
    press(tab, "stop")
    tab = visit(v="1", steps="70", hide=",".join([*GROUPS, "steps"]))
    assert keys(tab) == {"train", "stop", "show_all"}
    press(tab, "show_all")
    assert tab.query_params == {"v": "1", "steps": "70"}
    assert tab.number_input(key="set_steps").value == 70
    assert keys(tab) >= {"set_sharing", "set_positions", "pause", "quiet_mode", "new_seeds"}
    press(tab, "show_all")  # the same button hides them again
    assert keys(tab) == {"train", "stop", "show_all"}
    assert tab.query_params["hide"]


def test_share_shows_the_link_to_what_is_set_up_and_makes_class_links():
    """It says whether the link opens finished, and is the address if settings do not fit."""

    def shared(tab):
        tab.session_state["share"] = True
        show(tab)
        links = [code.value for code in tab.code if not code.value.startswith("import")]
        return links, " ".join(caption.value for caption in tab.caption)

    tab = visit(v="1", d_head="8", sharing="QKV,Q=K", hide="settings")
    link = "?v=1&sharing=QKV,Q%3DK&d_head=8"
    assert shared(tab)[0] == [link, f"{link}&hide=settings"]
    tab.multiselect(key="hide_directed").set_value(["d_head", "task"])
    assert shared(tab)[0] == [link, f"{link}&hide=task,d_head"]
    assert tab.query_params["hide"] == "settings"
    links, notes = shared(write(visit(v="1", d_head="8"), n_names=6))
    assert (links, "opens finished" in notes) == (["?v=1&d_head=8"], False)
    stored = tiny("directed", sharing=["QKV", "K=V"], n_seeds=1, d_head=3)
    tab = visit(run=store_finished(result_store(), stored), hide="positions")
    assert (tab.query_params, [*tab.warning]) == ({**stored.to_params(), "hide": "positions"}, [])
    assert status(tab).startswith("Trained earlier")
    assert "opens finished" in shared(tab)[1]


def test_a_wrong_value_is_told_below_its_box_and_stays_there():
    """It is called by its label; nothing can be trained, and the link keeps the valid values.

    A box is a decimal number without limits, so that the browser changes nothing that is typed.
    """
    tab = visit(v="1", d_head="8")
    for name, step in {"n_entries": 1, "steps": 100, "batch_size": 16, "d_head": 1}.items():
        box = widget(tab, name)
        assert (box.step, box.min, box.max, "Allowed: " in box.help) == (step, None, None, True)
    assert widget(tab, "learning_rate").step == 0.001
    for name, value, named in [
        ("n_entries", 3.7, r"Entries: 3\.7 .* 4 to 16"),
        ("n_names", 6.0, r"Entries: 8 .* “Names” \(6\)"),
        ("batch_size", 17.0, "Batch: 17 .* 16 from 16 to 512"),
    ]:
        before = widget(tab, name).value
        write(tab, **{name: value})
        below = [plain_text(one) for one in tab.sidebar.markdown if one.value.startswith(":red")]
        (said,) = [plain_text(error) for error in tab.error]
        assert re.match(named, said)
        assert below == [f":red[:material/error: {said}]"]
        assert widget(tab, name).value == value
        assert tab.sidebar.expander[0].proto.expanded == (name == "batch_size")  # which is in More
        assert disabled(tab) >= {"train", "step", "reset", "new_seeds"}
        assert tab.query_params == {"v": "1", "d_head": "8"}
        assert disabled(write(tab, **{name: before})) == {"pause", "stop"}


def test_a_variant_is_written_explained_and_added_or_a_slip_is_named():
    """A diagram and costs at the current sizes; then it is a pill; no column fits beside six."""

    def compose(tab, text):
        tab.session_state["add_variant"] = True
        show(tab)
        tab.text_input(key="variant_text").set_value(text)
        show(tab)
        return any(button.key == "add" and not button.disabled for button in tab.button)

    tab = visit(v="1", sharing="QKV,Q=K", d_head="8")
    assert compose(tab, "Reformer")
    assert "<svg" in drawn(tab, "previewed")["diagram"]
    text = " ".join(element.value for element in (*tab.markdown, *tab.caption))
    costs = Experiment(sharing=["Reformer"], d_head=8).costs("Reformer")
    numbers = [f"{one:,}" for one in (costs.parameters, costs.kv_cache, costs.multiply_adds)]
    for told in (find("Reformer").explanation, find("Reformer").source, *numbers):
        assert told in text
    assert not compose(tab, "<b>[x](y)</b> $1$")
    assert "<b>[x](y)" in plain_text(tab.error[0])
    assert not compose(tab, "QKV")  # it is a column already
    assert compose(tab, "q=k SIGNED temperature=2")
    press(tab, "add")
    added = "Q=K signed temperature=2"
    assert widget(tab, "sharing").value == ["QKV", "Q=K", added]
    assert (tab.session_state["variant_text"], tab.session_state["add_variant"]) == ("", False)
    seven = [*map(str, Sharing), "Q=K signed", "Q=K unit_key self_mask"]
    assert not compose(visit(v="1", sharing=",".join(seven[:6])), seven[6])
    tab = visit(v="1", sharing=",".join(seven))  # all stay chosen; none can be trained
    assert "7" in tab.error[0].value
    assert widget(tab, "sharing").value == seven
    assert disabled(tab) >= {"train", "step", "reset", "new_seeds"}
    assert not write(tab, sharing=seven[1:]).error
    assert write(tab, sharing=[]).error
    assert tab.button(key="train").disabled


def test_a_task_brings_its_own_defaults_and_keeps_what_was_set_by_hand():
    """So tasks can be compared; the first seed changes, so that the finished example is shown."""
    tab = switch(visit(), "phonebook")
    assert (widget(tab, "d_head").value, widget(tab, "self_mask").value) == (8, False)
    assert tab.query_params == {"v": "1", "task": "phonebook"}
    assert switch(tab, "directed").query_params == {}
    composed = "QKV,Q=K signed,K=V n_heads=4 kv_heads=1"
    link = {"d_head": "4", "steps": "70", "causal": "true", "first_seed": "7", "n_entries": "7"}
    tab = switch(visit(v="1", **link, sharing=composed), "mutual")  # takes even numbers only
    wanted = {"d_head": 4, "steps": 70, "sharing": composed.split(","), "causal": True}
    assert experiment_of(tab) == Experiment(task="mutual", **wanted)
    assert widget(tab, "n_entries").value == 8
    assert not [*tab.warning, *tab.error]
    tab = switch(visit(v="1", first_seed="7", sharing="QKV,QKV d_k=d/16,Q=K signed"), "phonebook")
    assert tab.query_params["sharing"] == "QKV,Q=K signed"
    assert "8/16" in plain_text(tab.warning[0])
    assert "QKV d_k=d/16" in str(tab.button_group(key="set_sharing").proto.options)
    tab = press(visit(v="1", task="reverse", n_seeds="2"), "full_size")
    assert experiment_of(tab) == full_size("reverse") == from_params(tab.query_params)
    assert "full_size" not in keys(tab) | keys(visit(v="1", task="reverse", hide="steps"))


def test_every_state_has_its_words_and_its_disabled_buttons(monkeypatch):
    """Troubles are told with their reasons and with what to do."""

    def job(state, **given):
        known = {"snapshot": shipped_example("directed"), "begun": True, "submitted_at": 1.0}
        return Job("fake", Experiment(), **{**known, "state": state, **given})

    greyed, over, moving = {}, {"pause", "stop"}, {"train", "step"}
    full, unwatched = "because the queue was full", "because nobody watched it"
    outlooks = {True: Outlook(0, 32, 100.0, 45.0), False: Outlook(3, 32, 100.0, 45.0)}
    service = SimpleNamespace(outlook=lambda _: outlooks[one.begun])
    monkeypatch.setattr(watched_job, "training_service", lambda: service)
    monkeypatch.setattr(
        lab_page,
        "st",
        SimpleNamespace(
            button=lambda *_, key, disabled=False, **__: greyed.update({key: disabled})
        ),
    )
    for one, words, wanted in [
        (job("waiting", snapshot=None), "Starting: the training process is", moving),
        (job("failed", error="no memory", snapshot=None), "failed: no memory. Press", over),
        (job("stopped", snapshot=None), "Stopped: Step 0 of 600.", over),
        (job("waiting", begun=False), "place 3 in the queue, begins in about 2 min. 32 e", moving),
        (job("stopped", begun=False, error=full), f"its turn came, {full}. Press **Train**", over),
        (
            job("stopped", begun=False),
            "Stopped before its turn came. Press **Train** to queu",
            over,
        ),
        (job("running"), "about 45 s left: 32 experiments take turns", moving),
        (job("stopped", error=unwatched), f"Stopped {unwatched}: Step 600", over),
        (job("finished", unstored="full", tried_again=True), "Not stored yet: full.", over),
        (job("paused", restarts=1), "began anew.", {"pause"}),
    ]:
        lab = Lab(Experiment())
        assert words in status_line(lab, one, one.snapshot, is_valid=True)
        lab_page.training_buttons(lab, lab.experiment, one)
        assert {key for key, disabled in greyed.items() if disabled} == wanted, words
