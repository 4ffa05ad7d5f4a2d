"""The part of Surgery about mixtures of W_K and W_V: without a browser."""

from dataclasses import replace

import numpy as np
import pytest
from test_filming import fail
from test_inspection_page import filmed, small_link, turn_to, visit_at, watch_film
from test_surgery_page import keys, operated, said
from visiting import drawn, press, show, visit, watch

from attnkit.figures.tying import tying_results
from attnkit.service.service import TrainingService
from attnkit.ui import inspection as inspection_page
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def mark_of(tab):
    """Return α and the accuracy of the chosen mixture, as the figure marks them."""
    (mark,) = [t for t in drawn(tab, "mixtures")["figure"]["data"] if t.get("mode") == "markers"]
    return mark["x"], mark["y"]


def test_all_seeds_of_the_run_are_measured():
    """The curve, the repairs, and how they were measured, whichever seed the page looks into."""
    link = small_link(n_seeds="2")
    tab = watch_film(visit_at("surgery", **link))
    text = said(tab)
    assert {"mixtures", "repairs_table"} <= keys(tab)
    assert "Mean of 2 seeds, with 95% intervals, 16 held-out examples each, after step 40" in text
    assert "they cost no parameters and no cache" in text
    assert "CKA of keys and values: 0." in text
    assert drawn(tab, "repairs_table")["diagram"].count("<tr>") == 6
    first_seed = int(link["first_seed"])
    tab.selectbox(key=f"inspected_seed_{first_seed}_2").set_value(first_seed + 1)
    assert "Mean of 2 seeds" in said(watch_film(show(tab)))


def test_the_slider_moves_the_mark_and_nothing_is_computed_again(monkeypatch):
    """It begins at the average, and the training process is not asked once more."""
    tab = operated()
    assert mark_of(tab)[0] == [0.5]
    asked = []
    monkeypatch.setattr(TrainingService, "inspect", lambda *given: asked.append(given))
    tab.select_slider(key="tying_alpha").set_value(1.0)
    tab = show(tab)
    assert mark_of(tab)[0] == [1.0]
    assert "α = 1 (keep W_K): " in said(tab)
    assert asked == []


def test_the_choice_holds_when_the_page_is_left():
    """As those of the other pickers."""
    tab = operated()
    tab.select_slider(key="tying_alpha").set_value(0.3)
    tab = turn_to(turn_to(show(tab), "attention"), "surgery")
    assert tab.select_slider(key="tying_alpha").value == 0.3
    assert mark_of(tab)[0] == [0.3]


def test_of_several_variants_one_is_shown():
    """Only those that have a W_K and a W_V are offered."""
    tab = operated(sharing="QKV,Q=K,RoPE", d_head="4")
    assert "Q=K: W_Q, W_K and W_V are not separate matrices." in said(tab)
    (control,) = [c for c in tab.button_group if (c.key or "").startswith("tying_variant")]
    assert control.options == ["QKV", "RoPE"]
    first = drawn(tab, "repairs_table")
    control.set_value(control.proto.options[1].content)
    assert drawn(show(tab), "repairs_table") != first


def test_where_nothing_can_be_tied_the_reason_is_told():
    """Instead of a curve."""
    tab = operated(sharing="Q=K,K=V")
    assert "None of these models can be tied in this way." in said(tab)
    for name in ("Q=K", "K=V"):
        assert f"{name}: W_Q, W_K and W_V are not separate matrices." in said(tab)
    assert "mixtures" not in keys(tab)


def test_a_training_process_that_is_busy_is_asked_again_only_by_the_visitor(monkeypatch):
    """The text stays, and every request may take long."""
    tab = operated()
    asked, inspect = [], TrainingService.inspect

    def busy(self, job_id, inspection, *given):
        if inspection.view != "tying":
            return inspect(self, job_id, inspection, *given)
        asked.append(job_id)
        return "The training process is busy"

    monkeypatch.setattr(TrainingService, "inspect", busy)
    monkeypatch.setattr(inspection_page, "_CACHE", inspection_page._Blobs(2**20))
    for _ in range(2):
        tab = show(tab)
        assert "The training process is busy." in said(tab)
        assert len(asked) == 1
    monkeypatch.setattr(TrainingService, "inspect", inspect)
    tab = press(tab, "again_tying")
    assert "mixtures" in keys(tab)
    assert "The training process is busy." not in said(tab)


def test_where_training_has_failed_there_is_no_model():
    """The heading does not stand over nothing."""
    tab = operated()
    fail(training_service(), filmed(tab).id)
    tab = show(tab)
    assert "The training has failed, so there is no model to tie." in said(tab)
    assert "mixtures" not in keys(tab)


def test_runs_that_have_diverged_have_one_sentence(monkeypatch):
    """Neither a table nor a figure of numbers that are none."""

    def lost(inspected):
        (result,), refusals = tying_results(inspected)
        arrays = {name: np.full_like(array, np.nan) for name, array in result.arrays.items()}
        return [replace(result, **arrays)], refusals

    monkeypatch.setattr("attnkit.ui.tying.tying_results", lost)
    tab = operated()
    text = said(tab)
    assert "All runs have diverged, so nothing can be tied." in text
    assert "CKA of keys" not in text
    assert not {"mixtures", "repairs_table"} & keys(tab)


def test_mixtures_wait_for_the_end_of_training():
    """They are measured once, not at every moment."""
    tab = press(visit(**small_link(steps="20000", batch_size="256")), "train")
    tab = watch(tab, lambda job: job.step > 100)
    try:
        text = said(turn_to(tab, "surgery"))
        assert "The mixtures appear when the training has ended." in text
    finally:
        training_service().stop(tab.session_state["lab"].job_id)
