"""The Atlas without a page: figures show the table, links keep choices, measured models stay."""

import json
import math
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_atlas import READER, TOYS, WRITER, heads_of, made_atlas, made_toys
from pandas import concat
from searching import briefly

from attnkit.figures.atlas import (
    atlas_panels,
    correlation,
    describe_depth,
    describe_scatter,
    plot_depth,
    plot_distribution,
    plot_scatter,
    relative_depth,
)
from attnkit.figures.groups import (
    counting_heads,
    describe_lacking,
    groups_of,
    heads_in,
    number_text,
    two_models,
)
from attnkit.figures.portrait import (
    describe_angles,
    describe_spectra,
    describe_split,
    energy_of,
    parts_of,
    plot_angles,
    plot_spectra,
    plot_split,
    random_squares,
)
from attnkit.realmodels.atlas import PLACE
from attnkit.realmodels.measures import MEASURES
from attnkit.realmodels.shipped import OFFSETS
from attnkit.ui.atlas import measured_models as measured
from attnkit.ui.atlas.choice import SECTIONS, AtlasChoice, Head
from attnkit.ui.atlas.model_measurement import keep_upload, under_free_names, upload_problem
from attnkit.variants.palette import BLUE_RED, COLORS
from attnkit.variants.sharing import Sharing

OVERLAP, COSINE = MEASURES["overlap_qk"], MEASURES["cos_qk"]


@pytest.fixture(scope="module")
def heads():
    """Every head of both models."""
    return heads_of(made_atlas().table)


@pytest.fixture(scope="module")
def all_heads(heads):
    """And those of our own models."""
    return concat([heads, heads_of(made_toys())], ignore_index=True)


# groups


def test_groups_are_kinds_of_models_and_compared_with_matrices_of_their_shape(heads):
    """Every head has one row in every setting; shared key and value heads can count once."""
    for fold, offset in product((False, True), OFFSETS):
        found = heads_in(made_atlas().table, fold, offset)
        assert not found.duplicated(list(PLACE)).any()
        assert len(found) == 2 * 5 + 3 * 6 + 3
        causal = found[found["kind"] == "causal"]
        assert ((causal["folded"] == fold) & (causal["offset"] == offset)).all()
    reader, causal, cross = groups_of(heads, "overlap_qk")
    names = [(group.model, group.kind, len(group.values)) for group in (reader, causal, cross)]
    assert names == [(READER, "encoder", 10), (WRITER, "causal", 18), (WRITER, "cross", 3)]
    assert reader.color != causal.color == cross.color
    assert len({reader.symbol, causal.symbol, cross.symbol}) == 3
    chances = [group.random[0] for group in (reader, causal)]
    assert chances == pytest.approx([3 / 13, 4 / 17], abs=0.02)
    assert groups_of(heads, "act_cka_qk") == []
    for measure, n in {"cos_kv": 6, "rank_k": 6, "cos_qk": 18}.items():
        rows = [counting_heads(causal.heads, measure, once) for once in (True, False)]
        assert list(map(len, rows)) == [n, 18], measure
    assert two_models([reader, causal, cross]) == (causal, reader)


def test_our_own_models_are_grouped_by_variant(all_heads):
    """In the colour of its sharing, and hollow; models without a measure are named."""
    groups = groups_of(all_heads, "symmetry")
    own = {group.model: group for group in groups if group.is_toy}
    assert set(own) == {"toy QKV", "toy Q=K"}
    assert own["toy Q=K"].color == COLORS[Sharing.Q_K]
    assert own["toy Q=K"].median == pytest.approx(1)
    assert TOYS[1] in own["toy Q=K"].tips("Symmetry")[0]
    for group in groups:
        assert group.is_toy == group.symbol.endswith("-open") == (group.color in COLORS.values())
    assert describe_lacking(all_heads, COSINE) == ""
    for column, lacks, told in (("family", "toy", "toy models"), ("kind", "cross", "(cross)")):
        some = all_heads.assign(cos_qk=all_heads["cos_qk"].mask(all_heads[column] == lacks))
        assert told in describe_lacking(some, COSINE)


# figures of all heads


def test_the_grid_has_every_head_in_its_cell(heads):
    """Rows are layers, columns heads; a head two deviations of its own below chance is marked."""
    drawn = heads.sample(frac=1, random_state=7).copy()
    broken = (drawn["model"] == READER) & (drawn["layer"] == 0) & (drawn["head"] == 3)
    drawn.loc[broken, "cos_qk"] = math.nan
    panels = atlas_panels(drawn, COSINE)
    json.dumps(panels, allow_nan=False)
    assert len(panels["panels"]) == 3
    for panel in panels["panels"]:
        rows = drawn[(drawn["model"] == panel["model"]) & (drawn["kind"] == panel["kind"])]
        wanted = rows.pivot_table("cos_qk", "layer", "head", dropna=False)
        assert (panel["layers"], panel["heads"]) == (list(wanted.index), list(wanted.columns))
        shown = np.array(panel["values"], float)
        assert shown == pytest.approx(wanted.to_numpy(float), rel=1e-3, nan_ok=True)
        assert re.search(r"median −?\d", panel["alt"])
        assert re.search(r"random −?\d", panel["note"])
    made = heads.assign(cos_qk=-0.05, cos_qk_random=0.0, cos_qk_random_sd=0.03)
    made.loc[made.index[3:5], "cos_qk_random_sd"] = [0.02, math.nan]
    assert atlas_panels(made, COSINE)["panels"][0]["below"] == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]


def test_colours_end_where_most_real_heads_are(heads, all_heads):
    """Zero is in the middle of signed measures; outliers and our own models do not count."""
    signed, shares = atlas_panels(heads, COSINE), atlas_panels(heads, OVERLAP)
    assert signed["low"] == -signed["high"]
    assert (shares["low"], shares["signed"]) == (0, False)
    assert atlas_panels(all_heads, COSINE)["high"] == signed["high"]
    ours = heads_of(made_toys())
    assert atlas_panels(ours, COSINE)["high"] == pytest.approx(1, abs=0.01)
    level = heads.assign(cos_qk=np.linspace(0, 0.5, len(heads)), cos_qk_random_sd=0.01)
    level.loc[level.index[0], "cos_qk"] = -0.97
    panels, high = atlas_panels(level, COSINE), level["cos_qk"].abs().quantile(0.98)
    assert (panels["high"], panels["beyond"]) == (pytest.approx(high), True)
    calm = heads.assign(cos_qk=0.001, cos_qk_random_sd=np.linspace(0.01, 0.07, len(heads)))
    panels = atlas_panels(calm, COSINE)  # twice the largest deviation of chance
    assert (panels["high"], panels["beyond"]) == (pytest.approx(0.14), False)


def test_strips_scatters_and_depths_have_a_dot_for_every_head(heads, all_heads):
    """Each in the row of its group, with median and chance; the words have the numbers."""
    groups = a, b, cross = groups_of(heads, "overlap_qk")
    figure = plot_distribution(groups, OVERLAP)
    assert go.Figure(plot_distribution([], OVERLAP)).data == ()
    dots, medians = go.Figure(figure).data[::2], figure["data"][1::2]
    for y, (group, row, mark) in enumerate(zip(groups, dots, medians, strict=True)):
        assert row.x == pytest.approx(group.values, rel=1e-3)
        assert all(abs(place - y) < 0.5 for place in row.y)
        assert (mark["x"], mark["y"]) == (pytest.approx([np.median(group.values)]), [y])
        (mean, sd), shapes = group.random, figure["layout"]["shapes"]
        chance = [(s["x0"], s["x1"]) for s in shapes if s["y0"] < y < s["y1"] and s["xref"] == "x"]
        assert chance == [(mean - sd, mean + sd), (mean, mean)]

    some = heads.copy()
    some.loc[some.index[0], "overlap_qk"] = math.nan
    traces = go.Figure(plot_scatter(some, OVERLAP, COSINE)).data
    assert [len(trace.x) for trace in traces] == [9, 18, 3]
    first = some.iloc[1:10].astype({"cos_qk": float})
    assert traces[0].x == pytest.approx(first["overlap_qk"].to_numpy(), rel=1e-3)
    assert traces[0].y == pytest.approx(first["cos_qk"].to_numpy(), rel=1e-3)
    r = float(first[["overlap_qk", "cos_qk"]].corr().iloc[0, 1])
    assert f"{READER}, encoder {number_text(r)}" in describe_scatter(some, OVERLAP, COSINE)
    assert math.isnan(correlation(np.ones(5), np.arange(5.0)))
    nobody = (some, OVERLAP, MEASURES["act_cka_qk"])
    assert "0 heads" in describe_scatter(*nobody)
    assert go.Figure(plot_scatter(*nobody)).data == ()
    assert set(relative_depth(cross.heads)) == {0}  # a single layer is the first
    line = go.Figure(plot_depth(a, b, OVERLAP)).data[3]
    assert line.x == (0, 0.5, 1)
    by_layer = b.heads.groupby("layer")["overlap_qk"].median()
    assert line.y == pytest.approx(by_layer.to_numpy(), rel=1e-3)
    assert f"difference {number_text(b.median - a.median)}" in describe_depth(a, b, OVERLAP)


def test_a_head_is_drawn_as_its_matrix_says(heads):
    """The symmetric share of the energy is that of the symmetry in the table: (1 + s) / 2."""
    for row in heads.itertuples():
        portrait = made_atlas().portrait(row.model, row.kind, row.layer, row.head)
        assert energy_of(portrait) == pytest.approx((1 + row.symmetry) / 2, abs=1e-4)
    d_model = row.d_model
    parts = symmetric, skew = parts_of(portrait)
    assert symmetric + skew == pytest.approx(portrait.matrix)
    assert symmetric == pytest.approx(symmetric.T)
    assert skew == pytest.approx(-skew.T)
    figures = plot_split(portrait), plot_spectra(portrait), plot_angles(portrait, d_model)
    split, spectra, angles = (go.Figure(figure).data for figure in figures)
    scale = figures[0]["layout"]["coloraxis"]
    assert scale["cmax"] == -scale["cmin"] == np.abs(portrait.matrix).max()
    squares = [portrait.angles[pair] ** 2 for pair in ("qk", "qv", "kv")]
    squares.append(random_squares(d_model, len(squares[0])))
    for shown, wanted in (
        ([np.array(trace.z) for trace in split], parts),
        ([trace.y for trace in spectra], [portrait.singular, portrait.symmetric, portrait.skew]),
        ([trace.y for trace in angles], squares),
    ):
        for values, own in zip(shown, wanted, strict=True):
            assert values == pytest.approx(own, rel=1e-2, abs=1e-6)
    signs = [color == BLUE_RED[-1] for color in spectra[1].marker.color]
    assert signs == list(portrait.symmetric > 0)
    assert describe_split(portrait).startswith(f"{100 * energy_of(portrait):.0f}%")
    energy = np.cumsum(portrait.singular**2) / (portrait.singular**2).sum()
    told = describe_spectra(portrait)
    assert told.startswith(f"{1 + int((energy < 0.5).sum())} of {len(energy)} ")
    assert number_text(float(portrait.symmetric.max())) in told
    for values in squares[2:]:
        assert number_text(float(values.mean())) in describe_angles(portrait, d_model)
    assert random_squares(97, 23).mean() == pytest.approx(23 / 97, abs=0.03)
    for value, text in {-0.0512: "−0.051", 12.34: "12.3", -0.0001: "0.000", math.nan: "–"}.items():
        assert number_text(value) == text


# links

NAMES = st.text("a/ é", min_size=1, max_size=9)  # a model's name may have strokes
KINDS, INDICES = st.sampled_from(["encoder", "cross"]), st.integers(0, 10**9 - 1)
CHOICES = {
    **dict.fromkeys(("measure", "x", "y"), st.sampled_from(list(MEASURES))),
    **dict.fromkeys(("fold", "once", "toys"), st.booleans()),
    **dict.fromkeys(("one", "other"), NAMES),
    "head": st.none() | st.builds(Head, NAMES, KINDS, INDICES, INDICES),
    "offset": st.sampled_from(OFFSETS),
    "section": st.sampled_from(["", *SECTIONS]),
}


@given(fields=st.fixed_dictionaries({}, optional=CHOICES))
@briefly(50)
def test_a_link_keeps_every_choice_and_leaves_out_the_defaults(fields):
    """A link opens the same choice for another visitor."""
    sent, found = AtlasChoice(**fields), AtlasChoice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AtlasChoice, "set_link", lambda self, link: setattr(self, "link", link))
        sent.write_link()
    found.follow(dict(sent.link))
    assert not found.problems
    assert {name: getattr(found, name) for name in fields} == fields
    if all(value == getattr(AtlasChoice(), name) for name, value in fields.items()):
        assert sent.link == {}


def test_every_fault_of_a_link_is_named_with_what_is_allowed_and_defaults_stand(heads):
    """Also heads and groups that are not there; a long text is cut."""
    choice, groups = AtlasChoice(), groups_of(heads, "cos_qk")
    faults = {
        "head": ("nonsense", "model/kind/layer/head"), "kv": ("twice", "once, query"),
        "measure": ("<b>x</b>", "cos_qk"), "offset": ("7", "0, 1, 4, 16"),
    }  # fmt: skip
    choice.follow({name: value for name, (value, _) in faults.items()} | {"one": "No", "mine": "x"})
    assert choice.find_pair(groups) == two_models(groups)
    told = " ".join(choice.problems)
    faults["one"] = ("No", f"{READER}, encoder; {WRITER}")
    for name, (value, words) in faults.items():
        assert f"{name}={value!r}. Allowed: {words}" in told
    for name in ("measure", "offset", "once", "one", "head", "mine"):
        assert getattr(choice, name) == getattr(AtlasChoice(), name), name
    texts = ("", "a/b/c", "a/b/1/x", "a/b/-1/2", "a/b//", "a/b/²/1")
    assert [text for text in texts if Head.of(text)] == []
    for link, told in (
        (f"{READER}/encoder/1/99", f"{READER}/encoder/1/0 is shown"),
        ("No such model/causal/0/0", "full link only"),
        ("a" * 4000 + "/b/1/1", "…"),
        ("a/b/" + "9" * 5000 + "/1", "head='a/b/999999999/1'"),
    ):
        choice.problems = []
        choice.follow({"head": link})
        assert choice.find(heads).model == (READER if link.startswith(READER) else WRITER)
        assert told in " ".join(choice.problems)
        assert len(" ".join(choice.problems)) < 400


def test_without_a_choice_the_head_farthest_from_chance_is_shown(heads):
    """Another model keeps the layer and the head that it has in common."""
    choice = AtlasChoice(measure="symmetry")
    away = (heads["symmetry"] - heads["symmetry_random"]).abs()
    assert list(choice.find(heads)) == list(heads.loc[away.idxmax(), list(PLACE)])
    assert choice.head is None
    choice.head = Head(WRITER, "encoder", 1, 4)
    assert choice.find(heads) == choice.head == Head(WRITER, "causal", 1, 4)
    choice.head = Head(WRITER, "cross", 1, 4)
    assert choice.find(heads) == Head(WRITER, "cross", 0, 0)
    assert not choice.problems


# models that visitors have measured


def test_an_id_returns_what_was_kept_until_newer_ones_need_its_room(monkeypatch):
    """Nobody can guess it, and an atlas that is too large has none."""
    keep, get = measured.keep_measured, lambda key: measured.measured_models().get(key)
    size = measured.size_of(made_atlas())
    for n_atlases, n_bytes in ((2, 10 * size), (20, 2 * size), (20, size - 1)):
        monkeypatch.setattr(measured, "MOST_ATLASES", n_atlases)
        monkeypatch.setattr(measured, "MOST_BYTES", n_bytes)
        measured.measured_models.clear()
        keys = [keep(made_atlas()) for _ in range(3)]
        if n_bytes >= size:
            assert len({key for key in keys if len(key) >= 20}) == 3
            assert [get(key) for key in keys] == [None, made_atlas(), made_atlas()]
            assert get("") is get(keys[2][:-1]) is None
    assert keys == [""] * 3
    measured.measured_models.clear()


def test_uploads_get_names_of_our_own_and_replace_no_model(monkeypatch, tmp_path):
    """Under fixed names, whatever paths theirs contain; only what can be a model is taken."""
    good = ("a.gguf", "a.safetensors config.json", "a.bin", "a.npz")
    bad = ("a.safetensors", "a.gguf b.gguf", "a.bin a.npz", "a.pt")
    assert [names for names in (*good, *bad) if not upload_problem(names.split())] == [*good]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def upload(name, content=b"x"):
        return SimpleNamespace(name=name, getbuffer=lambda: memoryview(content))

    files = [upload("../../evil.safetensors", b"weights"), upload("some.json", b"{}")]
    kept, source = keep_upload(files, "../../evil")
    assert ([*kept.iterdir()], source) == ([kept / "evil"], str(kept / "evil"))
    found = {path.name: path.read_bytes() for path in (kept / "evil").iterdir()}
    assert found == {"config.json": b"{}", "model.safetensors": b"weights"}
    _, source = keep_upload(map(upload, ["model.safetensors", "config.json"]), "model")
    assert Path(source).name == "upload"
    for ending in ("gguf", "bin", "npz"):  # such a file alone is a model, named by its file
        kept, source = keep_upload([upload(f"a model.{ending}")], "a model")
        assert Path(source) == kept / "a-model" / f"a-model.{ending}"
    found = under_free_names(made_atlas(), [READER, f"{READER} (2)"])
    assert list(found.table["model"].unique()) == [f"{READER} (3)", WRITER]
    moved = found.portrait(f"{READER} (3)", "encoder", 1, 2)  # its pictures move with it
    assert (moved.matrix == made_atlas().portrait(READER, "encoder", 1, 2).matrix).all()
    assert found.portrait(READER, "encoder", 1, 2) is None
