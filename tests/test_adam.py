"""Our Adam is torch's."""

import torch
from torch.testing import assert_close

from attnkit.model.adam import Adam


def test_steps_are_those_of_torch():
    """The same numbers after a hundred steps, gradients of zero among them."""
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(97, generator=generator)
    theirs = ours.clone().requires_grad_()
    gradient = torch.empty(97)
    adam, reference = (
        Adam(ours, gradient, [(slice(None), 0.01)]),
        torch.optim.Adam([theirs], lr=0.01),
    )
    for _ in range(100):
        gradient.copy_(torch.randn(97, generator=generator))
        gradient[::5] = 0
        theirs.grad = gradient.clone()
        adam.step()
        reference.step()
    assert_close(ours, theirs.detach(), atol=1e-6, rtol=1e-5)
    assert torch.isfinite(ours).all()


def test_learning_rates_of_its_own_round_as_one_for_all():
    """A number moves by the same bits, whatever rates others have; 0 leaves it where it is."""
    generator = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(2, 97, generator=generator)
    alone, mixed = start.clone(), start.clone()
    first, rest = slice(0, 48), slice(48, 97)
    optimisers = [
        Adam(alone, gradient, [(slice(None), 0.003)]),
        Adam(mixed, gradient, [(first, 0.003), (rest, 0.0)]),
    ]
    for _ in range(50):
        gradient.copy_(torch.randn(97, generator=generator))
        for optimiser in optimisers:
            optimiser.step()
    assert torch.equal(mixed[first], alone[first])
    assert torch.equal(mixed[rest], start[rest])
