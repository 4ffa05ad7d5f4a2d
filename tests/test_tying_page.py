"""The part of Surgery about mixtures of W_K and W_V: without a browser."""

import pytest
from test_inspection_page import small_link, turn_to, visit_at, watch_film
from test_surgery_page import keys, operated, said
from visiting import drawn, press, show, visit, watch

from attnkit.service.service import TrainingService
from attnkit.ui.service import training_service

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]


def mark_of(tab):
    """Where the chosen mixture stands: α and its accuracy."""
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
    (control,) = [c for c in tab.button_group if (c.key or "").startswith("tying_variant")]
    assert control.options == ["QKV", "RoPE"]
    first = drawn(tab, "repairs_table")
    control.set_value(control.proto.options[1].content)
    assert drawn(show(tab), "repairs_table") != first


def test_where_nothing_can_be_tied_the_reason_is_told():
    """Instead of a curve."""
    tab = operated(sharing="Q=K,K=V")
    assert "None of these models can be tied in this way." in said(tab)
    assert "Q=K does not have separate matrices W_Q, W_K and W_V" in said(tab)
    assert "mixtures" not in keys(tab)


def test_mixtures_wait_for_the_end_of_training():
    """They are measured once, not at every moment."""
    tab = press(visit(**small_link(steps="20000", batch_size="256")), "train")
    tab = watch(tab, lambda job: job.step > 100)
    try:
        text = said(turn_to(tab, "surgery"))
        assert "The mixtures appear when the training has ended." in text
    finally:
        training_service().stop(tab.session_state["lab"].job_id)
