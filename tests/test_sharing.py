"""The five partitions of {Q, K, V} and their text form."""

import pytest

from attnkit.variants.sharing import ROLES, Sharing

# sharing, classes, owner of Q K V, matrices, symmetric
PROPERTIES = [
    ("QKV", ["Q", "K", "V"], "QKV", 3, False),
    ("Q=K", ["QK", "V"], "QQV", 2, True),
    ("K=V", ["Q", "KV"], "QKK", 2, False),
    ("Q=V", ["QV", "K"], "QKQ", 2, False),
    ("Q=K=V", ["QKV"], "QQQ", 1, True),
]


@pytest.mark.parametrize("row", PROPERTIES, ids=lambda row: row[0])
def test_properties_agree_with_the_table(row):
    """Classes, owners, matrices and symmetry of a sharing are those worked out by hand."""
    text, classes, owners, n_matrices, symmetric = row
    sharing = Sharing(text)
    assert ["".join(members) for members in sharing.classes] == classes
    assert "".join(sharing.owner(role) for role in ROLES) == owners
    assert sharing.n_matrices == n_matrices
    assert sharing.symmetric is symmetric


def test_every_partition_is_there_once():
    """There are five partitions of three roles, and each is one sharing."""
    partitions = {frozenset(map(frozenset, sharing.classes)) for sharing in Sharing}
    assert len(partitions) == len(Sharing) == 5


@pytest.mark.parametrize("sharing", Sharing)
def test_classes_partition_the_roles_in_order(sharing):
    """Every role is in exactly one class; classes and members are in the order Q, K, V."""
    members = [role for cls in sharing.classes for role in cls]
    assert sorted(members) == sorted(ROLES)
    assert all(list(cls) == sorted(cls, key=ROLES.index) for cls in sharing.classes)
    firsts = [cls[0] for cls in sharing.classes]
    assert firsts == sorted(firsts, key=ROLES.index)


@pytest.mark.parametrize("sharing", Sharing)
def test_an_owner_owns_itself(sharing):
    """A role is owned if it is its own owner, and there are as many owners as matrices."""
    assert all(sharing.owns(sharing.owner(role)) for role in ROLES)
    assert sum(sharing.owns(role) for role in ROLES) == sharing.n_matrices


@pytest.mark.parametrize("sharing", Sharing)
def test_text_form_writes_the_tied_roles_with_equals_signs(sharing):
    """The text is the tied class joined by `=`, or the plain roles where nothing is tied."""
    tied = ["=".join(cls) for cls in sharing.classes if len(cls) > 1]
    assert sharing.value == (tied[0] if tied else "".join(ROLES))


def test_meanings_are_different_sentences():
    """Each sharing says what is tied in a sentence of its own."""
    meanings = {sharing.meaning for sharing in Sharing}
    assert len(meanings) == len(Sharing)
    assert all(meaning[0].isupper() and meaning.endswith(".") for meaning in meanings)
