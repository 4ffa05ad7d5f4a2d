"""Modules of one's own that tests train: each is attention in one way that ours is not."""

import torch
from torch import nn


class OneHead(nn.Module):
    """Norm and matrices of attention in one head, for modules that change one line."""

    def __init__(self, d_model, d_head):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Linear(d_model, d_head, bias=False) for _ in range(3))
        self.W_O = nn.Linear(d_head, d_model, bias=False)
        self.kv_cache_floats_per_token = 2 * d_head

    def projected(self, x):
        """Return queries, keys and values of the normalised residual stream."""
        rows = nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)
        return self.W_Q(rows), self.W_K(rows), self.W_V(rows)

    def scores(self, q, k):
        """Return scaled scores, with the self-mask."""
        return q @ k.mT / q.shape[-1] ** 0.5 - 1e5 * torch.eye(len(q[0])).to(q)


class Linear(OneHead):
    """Attention without softmax, whose cache is one matrix."""

    def forward(self, x):
        """Return the residual stream after the layer, and its scores."""
        q, k, v = self.projected(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return x + self.W_O(scores @ v / x.shape[1]), scores, None


class Gated(OneHead):
    """Values times a gate of the token that reads them."""

    def __init__(self, d_model, d_head):
        super().__init__(d_model, d_head)
        self.gate = nn.Parameter(torch.zeros(d_model, d_head))

    def forward(self, x):
        """Return the residual stream after the layer."""
        q, k, v = self.projected(x)
        pattern = self.scores(q, k).softmax(-1)
        return x + self.W_O(pattern @ v * torch.sigmoid(x @ self.gate))


class Hashed(OneHead):
    """Keys and queries through a random matrix that is drawn for every seed and never trained."""

    def __init__(self, d_model, d_head):
        super().__init__(d_model, d_head)
        self.register_buffer("hash", torch.randn(d_head, d_head))
        self.register_buffer("order", torch.randperm(d_head))
        self.register_buffer("same", torch.ones(d_head))

    def forward(self, x):
        """Return the residual stream after the layer, and its maps of two heads."""
        q, k, v = self.projected(x)
        scores = self.scores(q @ self.hash, (k @ self.hash)[..., self.order] * self.same)
        pattern = scores.softmax(-1).unsqueeze(1).expand(-1, 2, -1, -1)
        return x + self.W_O(pattern[:, 0] @ v), None, pattern


class Plain(OneHead):
    """Attention in steps; in it and in all classes below, earlier tokens only are seen."""

    def forward(self, x):
        """Return the residual stream after the layer."""
        q, k, v = self.projected(x)
        later = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1)
        return x + self.W_O((q @ k.mT / q.shape[-1] ** 0.5 + later).softmax(-1) @ v)


class Fused(OneHead):
    """Torch's fused attention."""

    def forward(self, x):
        """Return the residual stream after the layer."""
        q, k, v = (one.unsqueeze(1) for one in self.projected(x))
        z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.W_O(z.squeeze(1))


class Lazy(Plain):
    """Matrices whose shape is known at the first call."""

    def __init__(self, d_model, d_head):
        super().__init__(d_model, d_head)
        self.W_Q, self.W_K, self.W_V = (nn.LazyLinear(d_head, bias=False) for _ in range(3))


class AtFirstCall(Plain):
    """A matrix that the first call makes."""

    def __init__(self, d_model, d_head):
        super().__init__(d_model, d_head)
        del self.W_V

    def forward(self, x):
        """Return the residual stream after the layer."""
        if not hasattr(self, "W_V"):
            self.W_V = nn.Linear(x.shape[-1], self.W_O.in_features, bias=False)
        return super().forward(x)


class OfItsLength(Plain):
    """A vector for every position of the length that it was made for."""

    def __init__(self, d_model, d_head, n_ctx):
        super().__init__(d_model, d_head)
        self.places = nn.Parameter(torch.zeros(n_ctx, d_model))

    def forward(self, x):
        """Return the residual stream after the layer."""
        return super().forward(x + self.places)
