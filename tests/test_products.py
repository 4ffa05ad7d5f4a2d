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


@pytest.mark.parametrize(("n_rows", "n_read"), [(7, 11), (64, 3), (64, 32)])
@pytest.mark.parametrize("width", [1, 5, 16, 17, 33])
def test_products_are_those_of_torch_with_the_same_bits_in_any_company(n_rows, n_read, width):
    """Alone, and as one of three runs; a narrow projection that is alone is computed twice."""
    drawn = torch.Generator().manual_seed(0)
    shapes = ((n_rows, n_read), (n_read, width), (n_rows, width))
    given = [torch.randn(3, *shape, generator=drawn) for shape in shapes]
    expected = with_gradients(torch.matmul, *given)
    for multiply in (product, project):
        together = with_gradients(multiply, *given)
        for run in range(3):
            alone = with_gradients(multiply, *(each[run : run + 1] for each in given))
            for own, beside, wanted in zip(alone, together, expected, strict=True):
                assert_close(own[0], wanted[run])
                assert_close(beside[run], wanted[run])
                if multiply is project and n_rows == 64:
                    assert torch.equal(own[0], beside[run])
