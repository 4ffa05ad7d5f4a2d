"""Our Adam is torch's."""

import torch
from torch.testing import assert_close

from attnkit.adam import Adam


def test_steps_are_those_of_torch():
    """The same numbers after a hundred steps, gradients of zero among them."""
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(97, generator=generator)
    theirs = ours.clone().requires_grad_()
    gradient = torch.empty(97)
    adam, reference = Adam(ours, gradient, 0.01), torch.optim.Adam([theirs], lr=0.01)
    for _ in range(100):
        gradient.copy_(torch.randn(97, generator=generator))
        gradient[::5] = 0
        theirs.grad = gradient.clone()
        adam.step()
        reference.step()
    assert_close(ours, theirs.detach(), atol=1e-6, rtol=1e-5)
    assert torch.isfinite(ours).all()
