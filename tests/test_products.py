"""Products that round a run alike in any company: their values, gradients and bits."""

import pytest
import torch
from torch.testing import assert_close

from attnkit.model.products import product, project


def with_gradients(multiply, a, b, d_out):
    """The product of copies of a and b, and the gradients of both."""
    a, b = (given.clone().requires_grad_() for given in (a, b))
    out = multiply(a, b)
    return out.detach(), *torch.autograd.grad(out, (a, b), d_out)


@pytest.mark.parametrize("multiply", [product, project])
@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("width", [5, 17])
def test_values_and_gradients_are_those_of_torch(multiply, n_runs, width):
    """A narrow product that is alone, and computed twice, is among them."""
    drawn = torch.Generator().manual_seed(0)
    a, b, d_out = (
        torch.randn(n_runs, *shape, generator=drawn) for shape in ((7, 11), (11, width), (7, width))
    )
    found = with_gradients(multiply, a, b, d_out)
    for own, expected in zip(found, with_gradients(torch.matmul, a, b, d_out), strict=True):
        assert_close(own, expected)


@pytest.mark.parametrize("n_read", [3, 32])
@pytest.mark.parametrize("width", [1, 7, 16, 33])
def test_a_run_has_the_same_bits_in_any_company(width, n_read):
    """A projection of 64 rows and its gradients: alone, and as one of three runs."""
    drawn = torch.Generator().manual_seed(0)
    a, b, d_out = (
        torch.randn(3, *shape, generator=drawn)
        for shape in ((64, n_read), (n_read, width), (64, width))
    )
    together = with_gradients(project, a, b, d_out)
    for run in range(3):
        alone = with_gradients(project, *(each[run : run + 1] for each in (a, b, d_out)))
        for own, expected in zip(alone, together, strict=True):
            assert torch.equal(own[0], expected[run])
