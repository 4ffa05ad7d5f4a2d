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


def test_a_composed_variant_can_be_written_and_added():
    """An added variant is a column, a pill and a part of the link, and the form is empty again."""
    tab = compose(visit(v="1", sharing="QKV,Q=K"), "q=k SIGNED temperature=2")
    press(tab, "add")
    assert chosen(tab) == ["QKV", "Q=K", "Q=K signed temperature=2"]
    assert tab.query_params["sharing"] == "QKV,Q=K,Q=K signed temperature=2"
    assert tab.session_state["variant_text"] == ""
    assert not tab.session_state["add_variant"]


def test_the_form_says_what_a_variant_is_and_costs():
    """The form shows a diagram, an explanation, a source, and costs at the current sizes."""
    tab = compose(visit(v="1", sharing="QKV", d_head="8"), "Reformer")
    assert "keys of length 1" in drawn(tab, "previewed")["diagram"]
    text = " ".join(element.value for element in (*tab.markdown, *tab.caption))
    named = find("Reformer")
    costs = Experiment(sharing=["Reformer"], d_head=8).costs("Reformer")
    assert named.explanation in text
    assert named.source in text
    assert f"{costs.parameters:,} parameters; per token {costs.kv_cache} numbers kept" in text
    assert f"{costs.multiply_adds:,} multiply-adds" in text


def test_a_choice_of_the_catalogue_is_written_out():
    """A choice of the catalogue fills the text field, and a written text selects its entry."""
    tab = compose(visit(), "")
    tab.selectbox(key="catalogue_name").set_value("mla")
    show(tab)
    assert tab.text_input(key="variant_text").value == "QKV kv_rank=m/4"
    tab.text_input(key="variant_text").set_value("q=k signed")
    assert show(tab).selectbox(key="catalogue_name").value == "indefinite"
    tab.text_input(key="variant_text").set_value("Q=K signed temperature=2")
    assert show(tab).selectbox(key="catalogue_name").value is None
    assert can_add(tab)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Q=K unit_kay", "did you mean unit_key?"),
        ("QKV temperature=hot", "temperature: got 'hot', allowed a number from 0.01 to 100."),
        ("Q=K kv_heads=2", "kv_heads does not go with Q=K"),
        ("QKV kv_heads=2", "kv_heads=2 does not divide n_heads=1"),
        ("QKV V=I", "n_heads · d_head = d_model"),
        ("<b>[x](y)</b> $1$", "is unknown"),
    ],
)
def test_what_is_no_variant_is_told_and_stays_written(text, reason):
    """A text that is no variant gets its reason, and stays in the field."""
    tab = compose(visit(), text)
    assert reason in plain_text(tab.error[0])
    assert not can_add(tab)
    assert tab.text_input(key="variant_text").value == text
    assert not tab.button(key="train").disabled


def test_a_variant_can_be_switched_off_and_on_again():
    """A variant that is switched off stays on offer."""
    tab = visit(v="1", sharing="QKV," + COMPOSED[0])
    assert pills(tab) == [*(sharing.value for sharing in Sharing), "Indefinite"]
    tab.button_group(key="set_sharing").set_value(["QKV"])
    assert show(tab).query_params["sharing"] == "QKV"
    tab.button_group(key="set_sharing").set_value(["QKV", COMPOSED[0]])
    assert show(tab).query_params["sharing"] == "QKV," + COMPOSED[0]


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
