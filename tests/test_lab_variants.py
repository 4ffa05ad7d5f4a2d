"""Composed variants in the Lab: writing, adding, switching and training them."""

import pytest
from visiting import (
    columns,
    disabled,
    drawn,
    pills,
    plain_text,
    press,
    show,
    status,
    visit,
    visit_small,
    watch,
)

from attnkit.experiment.experiment import Experiment
from attnkit.variants.names import find
from attnkit.variants.sharing import Sharing

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("pages_service")]

COMPOSED = ["Q=K signed", "Q=K unit_key self_mask"]


def compose(tab, text):
    """Open the form and write a variant."""
    tab.session_state["add_variant"] = True
    show(tab)
    tab.text_input(key="variant_text").set_value(text)
    return show(tab)


def chosen(tab):
    """Return the variants that are switched on."""
    return tab.button_group(key="set_sharing").value


def can_add(tab):
    """Return whether the form has an enabled button Add."""
    return any(button.key == "add" and not button.disabled for button in tab.button)


def found(tab):
    """Return the names that the form offers."""
    groups = [group for group in tab.button_group if group.key == "variants_found"]
    return [option.content.partition(" (")[0] for one in groups for option in one.proto.options]


def test_a_variant_is_found_written_added_switched_off_and_on():
    """It is a column, a pill and a part of the link; the form is empty again."""
    tab = compose(visit(v="1", sharing="QKV,Q=K"), "multi-query")
    assert found(tab) == ["MQA", "K=V + MQA"]
    assert not tab.error
    tab.button_group(key="variants_found").set_value("mqa")
    assert show(tab).text_input(key="variant_text").value == "QKV n_heads=4 kv_heads=1"
    assert found(tab) == []
    assert can_add(tab)
    assert found(compose(tab, "gqa")) == ["K=V + GQA", "MHA-4"]  # it is drawn itself
    press(compose(tab, "q=k SIGNED temperature=2"), "add")
    added = "Q=K signed temperature=2"
    assert chosen(tab) == ["QKV", "Q=K", added]
    assert tab.query_params["sharing"] == f"QKV,Q=K,{added}"
    assert tab.session_state["variant_text"] == ""
    assert not tab.session_state["add_variant"]
    for chosen_now in (["QKV"], ["QKV", added]):
        tab.button_group(key="set_sharing").set_value(chosen_now)
        assert show(tab).query_params["sharing"] == ",".join(chosen_now)
    assert pills(tab) == [*(sharing.value for sharing in Sharing), added]


def test_the_form_says_what_a_variant_is_and_costs_or_why_it_is_none():
    """A diagram, an explanation, a source, and costs at the current sizes; a slip is named."""
    tab = compose(visit(v="1", sharing="QKV", d_head="8"), "Reformer")
    assert "keys of length 1" in drawn(tab, "previewed")["diagram"]
    text = " ".join(element.value for element in (*tab.markdown, *tab.caption))
    named = find("Reformer")
    costs = Experiment(sharing=["Reformer"], d_head=8).costs("Reformer")
    assert named.explanation in text
    assert named.source in text
    assert f"{costs.parameters:,} parameters; per token {costs.kv_cache} numbers kept" in text
    assert f"{costs.multiply_adds:,} multiply-adds" in text
    assert tab.selectbox(key="catalogue_name").value == "reformer"
    for wrong, reason in [
        ("Q=K unit_kay", "did you mean unit_key?"),
        ("QKV kv_heads=2", "kv_heads=2 does not divide n_heads=1"),
        ("<b>[x](y)</b> $1$", "is unknown"),
    ]:
        compose(tab, wrong)
        assert reason in plain_text(tab.error[0])
        assert not can_add(tab)
        assert tab.text_input(key="variant_text").value == wrong
        assert not tab.button(key="train").disabled


def test_the_form_refuses_a_seventh_column_and_one_that_is_there():
    """The form says before anything is typed that no seventh column fits, and refuses it."""
    tab = compose(visit(v="1", sharing="QKV,Q=K,K=V,Q=V,Q=K=V," + COMPOSED[0]), "")
    assert any("6 variants are chosen" in warning.value for warning in tab.warning)
    assert not can_add(compose(tab, COMPOSED[1]))
    tab = compose(visit(), "QKV")
    assert not can_add(tab)
    assert any(caption.value == "It is one of your columns." for caption in tab.caption)


def test_seven_columns_are_told_and_none_is_dropped():
    """Seven variants of a link stay chosen, and training is disabled until one is off."""
    seven = ["QKV", "Q=K", "K=V", "Q=V", "Q=K=V", *COMPOSED]
    tab = visit(v="1", sharing=",".join(seven))
    assert tab.error[0].value.startswith("At most 6 variants fit side by side, but 7 are chosen")
    assert chosen(tab) == seven
    assert disabled(tab) >= {"train", "step", "reset", "new_seeds"}
    tab.button_group(key="set_sharing").set_value(seven[1:])
    assert not show(tab).error
    assert disabled(tab) == {"pause", "stop"}


def test_composed_variants_train_beside_each_other():
    """Variants of other heads and widths train together, and maps name a head that is lacking."""
    variants = ["QKV", "Q=K signed", "QKV n_heads=2 d_k=4 diff", "QKV n_heads=4 kv_heads=1"]
    tab = press(visit_small(sharing=",".join(variants), d_head="4", steps="20"), "train")
    watch(tab, lambda job: job.over)
    assert status(tab).startswith("Finished: Step 20 of 20, 4 models in")
    names = [column["name"] for column in columns(tab)]
    assert sorted(names) == ["Indefinite", "MQA", "QKV", "QKV n_heads=2 d_k=4 diff"]
    head = next(box for box in tab.selectbox if box.label == "Head")
    assert head.options == ["mean of heads", *(f"head {number}" for number in (1, 2, 3, 4))]
    head.set_value(2)
    show(tab)
    lacking = {column["name"]: column["map"]["lacking"] for column in columns(tab)}
    assert lacking["QKV"] == "It has 1 head only."
    assert lacking["QKV n_heads=2 d_k=4 diff"] == "It has 2 heads only."
    assert lacking["MQA"] == ""
