"""The five partitions of {Q, K, V} and their text form."""

import pytest

from attnkit.variants.sharing import ROLES, Sharing

# text, classes, owner of Q K V, matrices, symmetric
PROPERTIES = [
    ("QKV", ["Q", "K", "V"], "QKV", 3, False),
    ("Q=K", ["QK", "V"], "QQV", 2, True),
    ("K=V", ["Q", "KV"], "QKK", 2, False),
    ("Q=V", ["QV", "K"], "QKQ", 2, False),
    ("Q=K=V", ["QKV"], "QQQ", 1, True),
]


@pytest.mark.parametrize(("text", "classes", "owners", "n_matrices", "symmetric"), PROPERTIES)
def test_properties_are_those_worked_out_by_hand(text, classes, owners, n_matrices, symmetric):
    """All five, each with a sentence of its own."""
    assert [sharing.value for sharing in Sharing] == [row[0] for row in PROPERTIES]
    sharing = Sharing(text)
    assert ["".join(members) for members in sharing.classes] == classes
    assert "".join(sharing.owner(role) for role in ROLES) == owners
    assert [role for role in ROLES if sharing.owns(role)] == [c[0] for c in classes]
    assert (sharing.n_matrices, sharing.symmetric) == (n_matrices, symmetric)
    assert len({each.meaning for each in Sharing}) == 5
