"""Pages that look inside models and change them: whose film they show, what a visitor can do."""

import re
from unittest.mock import Mock

import pytest
import visiting
from idle import link_of, open_page
from visiting import drawn, plain_text, press, said, show, turn_to, visit, watch
from waiting import PATIENCE, wait_until

from attnkit.analysis.inspection.request import Inspection
from attnkit.analysis.inspection.result import InspectionResult
from attnkit.experiment.experiment import from_params
from attnkit.service.server import server_settings
from attnkit.service.service import Refused, TrainingService
from attnkit.training import train
from attnkit.ui.server.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]
PAGES = {"attention": "attention", "asymmetry": "symmetry", "similarity": "similarity"}
REASON = "12 experiments wait already"
refuse = Mock(side_effect=Refused(REASON))


def small_link(**params):
    """Settings that nobody has trained yet."""
    fresh = next(visiting.FRESH_SEED)
    return {**visiting.SMALL, "first_seed": fresh, "steps": "40", **params}


def filmed(tab):
    """The job whose film is shown."""
    return training_service().job(tab.session_state["lab"].filmed_id)


def watch_film(tab):
    """Wait until what is filmed has ended, then draw the page."""
    wait_until(training_service(), filmed(tab).id, lambda job: job.over)
    return show(tab)


def trained_at(page, **params):
    """Open a page with a link that nobody has trained, and train it there."""
    return watch_film(press(open_page(page, **small_link(**params)), "train_here"))


def header_of(tab, page):
    """The header of what the page's figures were given."""
    (component,) = [e.proto for e in tab.get("bidi_component") if (e.key or "") == page]
    return InspectionResult.from_bytes(component.bytes).header


def keys(tab):
    """Keys of the live components and buttons."""
    return {element.key for element in (*tab.get("bidi_component"), *tab.button)}


def follow(tab, **link):
    """Open another link in the same tab."""
    tab.query_params.clear()
    tab.query_params.update(link)
    return show(tab)


def test_what_a_visitor_trains_is_seen_on_all_pages_and_in_the_lab():
    """Nothing is trained unasked; a press trains the experiment of the link, once for all pages."""
    link = small_link(n_seeds="3")
    n_jobs = len(training_service().overview())
    tab = open_page("attention", **link)
    assert len(training_service().overview()) == n_jobs
    assert "6 models" in tab.info[0].value
    tab = watch_film(press(tab, "train_here"))
    job = filmed(tab)
    assert job.kept
    assert job.id == tab.session_state["lab"].job_id
    for page, view in PAGES.items():
        tab = turn_to(tab, page)
        tab.session_state["take_away"] = True
        tab = show(tab)
        header = header_of(tab, page)
        assert (header["view"], header["film"]) == (view, job.id)
        assert header["steps"] == [0, 10, 20, 30, 40]
        assert header["seed"] == int(link["first_seed"])
        assert [variant["name"] for variant in header["variants"]] == ["QKV", "Q=K"]
        files = {element.key for element in tab.get("download_button")}
        assert {"page_html", "module_code", "module_weights"} <= files
        code = "\n".join(element.value for element in tab.code)
        for one in ("class Transformer(nn.Module)", "python -m attnkit train", "import attnkit"):
            assert one in code
    tab = turn_to(tab, "lab")
    assert tab.button(key="train").label == "Train again"
    assert tab.session_state["lab"].job.state == "finished"
    assert tab.session_state["lab"].experiment == job.experiment
    assert job.experiment.n_seeds == 3
    assert not tab.error


def test_what_still_trains_is_shown_as_far_as_it_is_and_another_seed_only_while_looked_at():
    """Only what is new is sent; the page Surgery trains on beside it, and mixtures wait."""

    def steps_of(job_id, **asked):
        blob = service.inspect(job_id, Inspection("attention", **asked), PATIENCE)
        return InspectionResult.from_bytes(blob).header["steps"]

    service, link = training_service(), small_link(n_seeds="2", **visiting.UNENDING)
    tab = press(open_page("attention", **link), "train_here")
    run = filmed(tab)
    watch(turn_to(tab, "asymmetry"), lambda job: job.step > 500)
    steps = header_of(tab, "asymmetry")["steps"]
    assert steps[0] == 0 < steps[-1] < 20_000
    assert min(steps_of(run.id, since=0)) > 0
    first, last = run.experiment.seeds
    picker = f"inspected_seed_{first}_2"
    tab.selectbox(key=picker).set_value(last)
    other = filmed(show(tab))
    assert (list(other.experiment.seeds), other.kept) == ([last], False)  # it is no result
    tab.selectbox(key=picker).set_value(first)
    assert filmed(show(tab)).id == run.id
    assert service.job(other.id).state == "stopped"
    turn_to(tab, "surgery")
    assert "newest step" in said(tab)
    assert keys(tab) & FIGURES == FIGURES - {"mixtures"}
    assert press(tab, "train_on").button(key="train_on").disabled
    assert tab.session_state["operation"].job.active
    tab = ended(tab, "stop_trained_on")
    assert tab.session_state["operation"].job.state == "stopped"
    assert not tab.button(key="train_on").disabled
    assert service.job(run.id).active
    service.stop(run.id)
    wait_until(service, run.id, lambda job: job.settled)
    assert steps_of(run.id)[0] == 0
    one = run.experiment.replace(first_seed=first, n_seeds=1)
    whole = service.film(one)
    assert service.film(one, shown=run.id) == run.id != whole
    service.stop(whole)


def test_picks_and_a_book_of_one_s_own_hold_on_all_pages(monkeypatch):
    """Streamlit alone would forget them. Faulty fields and reasons of refusals are told."""
    tab = open_page("attention", **small_link(n_heads="99"))
    assert "n_heads: got '99'" in plain_text(tab.warning[0])
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "submit", refuse)
        assert REASON in press(tab, "train_here").warning[-1].value
    tab = trained_at("attention", task="phonebook", n_heads="2")
    tab.selectbox(key="inspected_head").set_value(1)
    turn_to(show(tab), "similarity")
    assert header_of(tab, "similarity")["request"]["head"] == 1
    turn_to(tab, "attention")
    tab.toggle(key="inspected_custom_book").set_value(True)
    show(tab)
    assert "Jindřich" in header_of(tab, "attention")["layers"][0]["columns"]
    tab.text_area(key="inspected_book_phonebook").set_value("Ann 1")
    show(tab)
    assert re.search("got 1 .*at least 2", plain_text(tab.error[0]))


# Surgery

FIGURES = {"ways_table", "heads_table", "mixtures"}
CONCLUSION = re.compile(r"^Tying | little to lose | cannot be tied |nothing is left to tie")


def about(tab, variant, tying):
    """Whether the conclusion is about tying a variant; a model near chance has little to lose."""
    return concluded(tab).startswith((f"Tying {tying} ", f"{variant} has little to lose"))


def concluded(tab):
    """The conclusion, the first text of the page after the run and its link."""
    return next(text for text in map(plain_text, tab.markdown) if CONCLUSION.search(text))


def choose(tab, **wanted):
    """Choose by the beginning of a control's key."""
    for name, value in wanted.items():
        (control,) = [c for c in tab.button_group if (c.key or "").startswith(f"cut_{name}")]
        control.set_value(value)
        show(tab)
    return tab


def ended(tab, key):
    """Press a button, wait until what is trained on has ended, and draw the page."""
    tab = press(tab, key)
    wait_until(training_service(), tab.session_state["operation"].job.id, lambda job: job.over)
    return show(tab)


def test_operations_are_offered_and_trained_on(monkeypatch):
    """The slider of mixtures computes nothing, and a refusal is told once."""
    tab = trained_at("surgery", n_seeds="2")
    assert about(tab, "QKV", "W_Q and W_K to their average")
    assert keys(tab) & {*FIGURES, "recovery"} == FIGURES
    assert "Mean of 2 seeds" in said(tab)
    tab = choose(tab, variant="Q=K")
    assert about(tab, "Q=K", "W_Q, W_K and W_V to their average")
    assert drawn(tab, "ways_table")["diagram"].count("<tr") == 3
    tab = choose(tab, variant="QKV", tie="K=V", method="keep W_K")
    assert about(tab, "QKV", "W_K and W_V by keeping W_K")
    assert "▸ keep W_K" in drawn(tab, "ways_table")["diagram"]
    assert about(choose(tab, tie="Q=V"), "QKV", "W_Q and W_V to their average")  # has no W_K
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "inspect", lambda *_, **__: pytest.fail("computed again"))
        tab.select_slider(key="tying_alpha").set_value(1.0)
        assert "α = 1 (keep W_K): " in said(show(tab))
    traces = drawn(turn_to(turn_to(tab, "attention"), "surgery"), "mixtures")["figure"]["data"]
    assert [trace["x"] for trace in traces if trace.get("mode") == "markers"] == [[1.0]]
    tab = choose(tab, tie="K=V", method="keep W_V")
    tab = ended(tab, "train_on")
    operation = tab.session_state["operation"]
    job = operation.job
    assert [v.value for v in job.experiment.sharing] == ["QKV", "QKV tie=K=V tie_by=keep_V"]
    assert (job.experiment.n_seeds, job.experiment.training.steps, job.kept) == (2, 80, True)
    assert "Tied at step 40: " in concluded(tab)
    assert "40 steps later" in drawn(tab, "recovery")["alt"]
    assert press(tab, "train_on").session_state["operation"].job_id == job.id
    tab = choose(tab, tie="Q=K", method="average")
    assert said(ended(tab, "train_on")).count("\n| QKV: ") == len(operation.ended) == 2
    with monkeypatch.context() as patched:  # another server goes on with what this one has left
        lost = {job.experiment.hash: 1}
        patched.setattr(TrainingService, "interrupted", lambda service, watcher: lost)
        other = open_page("surgery", **link_of(tab))
    assert about(other, "QKV", "W_K and W_V by keeping W_V")
    assert other.session_state["operation"].job.experiment == job.experiment
    tab = follow(tab, **small_link())
    tab = watch(press(turn_to(tab, "lab"), "train"), lambda job: job.over)
    assert "recovery" not in keys(turn_to(tab, "surgery"))


def test_what_is_not_possible_says_why(monkeypatch):
    """Tying, mixing and training on may be impossible; all else is offered all the same."""
    tab = trained_at("surgery", evaluate_every="1000", steps="400")
    assert tab.button(key="train_on").disabled
    assert re.search("cannot be trained on.* 1000 .*at most 400", said(tab))
    assert "evaluate_every" not in said(tab)
    tab = trained_at("surgery", sharing="QKV,Q=K,RoPE", d_head="4")
    assert re.search("^Q=K: .* separate", said(tab), re.MULTILINE)
    (control,) = [c for c in tab.button_group if (c.key or "").startswith("tying_variant")]
    assert control.options == ["QKV", "RoPE"]
    first = drawn(tab, "repairs_table")
    control.set_value(control.proto.options[1].content)
    monkeypatch.setenv("ATTNKIT_MAX_STEPS", "40")
    server_settings.cache_clear()
    assert drawn(show(tab), "repairs_table") != first
    assert "step 20 and trains 20" in said(tab)
    tab = trained_at("surgery", sharing="Q=K=V")
    assert "nothing is left" in concluded(tab)
    assert keys(tab) & FIGURES == {"heads_table"}


def test_what_went_wrong_is_told_and_can_be_tried_again(monkeypatch):
    """A failure is no run that has not begun."""
    inspect = TrainingService.inspect

    def busy(self, job_id, inspection, **given):
        if inspection.view != "tying":
            return inspect(self, job_id, inspection, **given)
        return "it is busy"

    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "inspect", busy)
        tab = show(trained_at("surgery", sharing="QKV"))
        assert "it is busy" in said(tab)
    tab = press(tab, "again_tying")
    assert ("it is busy" in said(tab), "mixtures" in keys(tab)) == (False, True)
    service, failed = training_service(), filmed(tab).id
    with service._changed:
        service._queue.update(failed, state="failed", error="not enough memory")
    text = said(show(show(tab)))
    assert ("not enough memory" in text, "no trained model" in text) == (True, False)
    assert (filmed(tab).id, "mixtures" in keys(tab)) == (failed, False)
    tab = watch_film(press(tab, "again_ties"))
    assert filmed(tab).id != failed
    assert about(tab, "QKV", "W_Q and W_K to their average")


# What rescues symmetric scores


def test_a_rescue_is_told_and_taken_back_where_it_belongs(monkeypatch):
    """It stands on its own task while its run is on screen; a refusal leaves all as it was."""
    link = small_link()
    tab = turn_to(watch(press(visit(**link), "train"), lambda job: job.over), "asymmetry")
    before = tab.session_state["lab"].job_id
    assert "rescue_undo" not in keys(tab)
    tab = show(watch(press(tab, "rescue_n_heads"), lambda job: job.over))
    assert re.search(r"1 head → .* 4 heads \(1 seed\)", said(tab))
    tab = follow(tab, v="1", task="copy", sharing="Q=K", steps="40")
    assert ("4 heads (" in said(tab), "rescue_undo" in keys(tab)) == (False, False)
    tab = follow(tab, **{**link, "n_heads": "4"})
    known = tab.session_state["lab"].job_id
    with monkeypatch.context() as patched:
        patched.setattr(TrainingService, "submit", refuse)
        patched.setattr(TrainingService, "find", lambda *_: None)
        tab = press(tab, "rescue_undo")
        assert REASON in said(tab)
        assert tab.session_state["lab"].job_id == known
    tab = press(tab, "rescue_undo")
    assert tab.session_state["lab"].job_id == before
    assert ("4 heads (" in said(tab), "rescue_undo" in keys(tab)) == (False, False)
    link = small_link()  # a shipped example that was changed is shown again without training
    experiment = from_params(link)
    snapshot = train(experiment).snapshot
    monkeypatch.setattr("attnkit.ui.lab.lab.shipped_example", lambda _: snapshot)
    tab = press(open_page("asymmetry", **link), "rescue_n_heads")
    tab = press(show(watch(tab, lambda job: job.over)), "rescue_undo")
    lab = tab.session_state["lab"]
    assert (lab.job, lab.experiment) == (None, experiment)
    assert training_service().find(experiment) is None
    assert "rescue_n_heads" in keys(tab)
