"""What a module of one's own has and does: buffers, files, devices, masks, films."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
from own_modules import Hashed, Later, Linear, OneHead, Pinned, Talking, Window
from test_module import SMALL, exported

import attnkit as ak
from attnkit.analysis.inspection.views import OF_MODULES, VIEWS
from attnkit.experiment import InvalidExperiment
from attnkit.foundation.process import environment_with_package


def test_buffers_that_are_drawn_belong_to_their_seed():
    """Every seed has its own, which stay as drawn, count as no parameters, and are in the film."""
    hashed = ak.variant(Hashed)
    experiment = ak.Experiment(sharing=[hashed], n_heads=2, **SMALL)
    module = experiment.wiring(hashed).module
    assert sorted(module.drawn) == ["hash", "order"]
    one, other = ak.train(experiment, "cpu", False).parameters
    assert (one["0.hash"] != other["0.hash"]).any()
    for seed, parameters in enumerate((one, other)):
        drawn = module.initial(seed, 0)
        assert (drawn["hash"].numpy() == parameters["0.hash"]).all()
        assert sorted(parameters["0.order"]) == list(range(experiment.size.d_head))
    trainable = sum(
        p.numel() for p in Hashed(experiment.size.d_model, experiment.size.d_head).parameters()
    )
    assert module.n_parameters == trainable
    alone = ak.train(experiment.replace(first_seed=1, n_seeds=1), "cpu", False)
    assert (alone.parameters[0]["0.hash"] == other["0.hash"]).all()
    np.testing.assert_allclose(alone.parameters[0]["W_U"], other["W_U"], 1e-4, 1e-6)


def test_the_layers_of_a_class_that_was_given_anew_are_dropped():
    """Nothing keeps the modules of an earlier class of this name and file."""

    def gives():
        class Same(Window):
            number = next(numbers)

        return ak.variant(Same)

    numbers = iter(range(2))
    text = gives()
    layers = weakref.ref(ak.Experiment(sharing=[text], **SMALL).wiring(text).module)
    assert layers() is not None
    gives()
    gc.collect()
    assert layers() is None


def test_a_class_of_a_script_has_the_file_of_the_script(tmp_path):
    """`python my.py` names the file, and gives the class the variant that the file gives."""
    script = tmp_path / "my.py"
    script.write_text(exported(tmp_path).read_text() + (
        "\n\nif __name__ == '__main__':\n    import attnkit as ak\n"
        "    from attnkit.variants.module import GIVEN\n"
        "    text = ak.variant(Layer)\n    print(text, GIVEN[text.given['module'].value].origin)\n"
    ))  # fmt: skip
    environment = environment_with_package()
    command = [sys.executable, str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.split() == [*ak.variant(f"{script}:Layer").split(), "my.py"]


def test_a_module_that_sees_later_tokens_is_refused_where_that_is_cheating():
    """The message says which position; without the setting the module is fine."""
    later = ak.variant(Later)
    assert ak.Experiment(sharing=[later], **SMALL)
    with pytest.raises(InvalidExperiment, match=r"output at position \d+ of \d+ changes with"):
        ak.Experiment(task="induction", sharing=[later])


def test_nothing_is_pinned_to_the_cpu():
    """On another device (meta: shapes only) all is computed there, and a stray tensor is told."""
    meta = torch.device("meta")
    for attention in (Linear, Window, Talking, Hashed, Pinned):
        variant = ak.variant(attention)
        experiment = ak.Experiment(sharing=[variant], n_heads=2, **SMALL)
        layers = experiment.wiring(variant).module
        weights = {name: value[None].to(meta) for name, value in layers.initial(0, 0).items()}
        x = torch.empty(1, 3, experiment.task.n_ctx, experiment.size.d_model, device=meta)
        if attention is Pinned:
            with pytest.raises(ValueError, match=r"forward fails on meta .*line \d+"):
                layers.run(0, weights, x, x, None)
        else:
            assert layers.run(0, weights, x, x, None).x.device == meta


def test_scores_with_a_mask_are_not_measured():
    """Their asymmetry would be that of the mask; a sentence says so, and the pattern is shown."""

    class Masked(OneHead):
        def forward(self, x):
            q, k, v = self.projected(x)
            scores = self.scores(q, k)
            return x + self.W_O(scores.softmax(-1) @ v), scores, scores.softmax(-1)

    masked = ak.variant(Masked)
    result = ak.train(ak.Experiment(sharing=["QKV", masked], **SMALL), "cpu", False)
    assert "returns scores with a mask in them" in result.experiment.wiring(masked).module.missing
    history = result.snapshot.history
    assert np.isnan(history["score_symmetry"][:, 2:]).all()
    assert np.isfinite(history["mass_on_target"][:, 2:]).all()


def test_a_film_is_recorded_and_pages_show_what_they_can():
    """Asymmetry has all variants; Attention leaves modules out, and refuses them alone."""
    columns = [ak.variant(one) for one in (Linear, Window, Hashed)]
    both = ak.record(ak.Experiment(sharing=["QKV", *columns], n_heads=2, **SMALL), progress=False)
    views = {view: ak.inspect(both, ak.Inspection(view)) for view in VIEWS}
    shown = {view: len(result.header["variants"]) for view, result in views.items()}
    assert shown == {view: 4 if view in OF_MODULES else 1 for view in VIEWS}
    assert np.isfinite(views["symmetry"].framed["2.a"][:, 0, 0]).all()
    film = ak.record(ak.Experiment(sharing=[columns[0]], **SMALL), progress=False)
    assert len(film.frames) == 3
    assert np.isfinite(film.head_symmetry).all()
    with pytest.raises(ValueError, match="film: got Linear, which a PyTorch module computes"):
        ak.inspect(film, ak.Inspection("attention"))
