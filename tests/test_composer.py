"""The form "Add a variant": searching the catalogue and taking what was found."""

import pytest
from idle import idle_service, show, visit

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def _copy(tmp_path_factory):
    with idle_service(tmp_path_factory.mktemp("store")):
        yield


@pytest.fixture(scope="module")
def tab():
    """A Lab with the form open."""
    tab = visit(v="1", sharing="QKV")
    tab.session_state["add_variant"] = True
    return show(tab)


def write(tab, text):
    """Write into the search box."""
    tab.text_input(key="variant_text").set_value(text)
    return show(tab)


def found(tab):
    """The names that are offered."""
    if not any(group.key == "variants_found" for group in tab.button_group):
        return []
    options = tab.button_group(key="variants_found").proto.options
    return [option.content.partition(" (")[0] for option in options]


def test_an_alias_finds_an_entry_which_is_written_out_when_chosen(tab):
    """Without an error message on the way; the text form can be changed afterwards."""
    write(tab, "multi-query")
    assert found(tab) == ["MQA", "K=V + MQA"]
    assert "MQA (multi-query attention)" in str(tab.button_group(key="variants_found").proto)
    assert not tab.error
    tab.button_group(key="variants_found").set_value("mqa")
    show(tab)
    assert tab.text_input(key="variant_text").value == "QKV n_heads=4 kv_heads=1"
    assert found(tab) == []
    assert not tab.button(key="add").disabled


def test_a_name_is_a_variant_and_finds_its_relatives(tab):
    """The entry itself is drawn, so only the others are offered."""
    write(tab, "gqa")
    assert found(tab) == ["K=V + GQA", "MHA-4"]
    assert not tab.button(key="add").disabled


def test_a_text_form_searches_nothing_and_nonsense_is_told(tab):
    """A slip in a text form is named as before."""
    assert found(write(tab, "K=V n_heads=4 kv_heads=1")) == []
    assert found(write(tab, "Q=K unit_kay")) == []
    assert "did you mean unit_key?" in tab.error[0].value.replace("\\", "")
