"""The small drawing of what is tied: matrices above, the roles that read them below."""

from __future__ import annotations

from attnkit.figures.palette import COLORS
from attnkit.sharing import ROLES, Role, Sharing

_ROLE_X: dict[Role, int] = dict(zip(ROLES, (20, 60, 100), strict=True))


def sharing_diagram(sharing: Sharing) -> str:
    """An SVG that scales with its container and takes its ink from `currentColor`."""
    color = COLORS[sharing]
    centres = {members: _centre(sharing, members) for members in sharing.classes}
    lines = [
        f'<path d="M{x:g} 20L{_ROLE_X[role]} 43" stroke="{color}" stroke-width="2.5"/>'
        for members, x in centres.items()
        for role in members
    ]
    boxes = [
        f'<rect x="{x - 15:g}" y="2" width="30" height="18" rx="3" fill="{color}"/>'
        f'<text x="{x:g}" y="15.5" class="ak-matrix">W</text>'
        for x in centres.values()
    ]
    roles = [
        f'<circle cx="{x}" cy="52" r="10" class="ak-role"/><text x="{x}" y="56.5">{role}</text>'
        for role, x in _ROLE_X.items()
    ]
    count = {1: "one matrix", 2: "two matrices", 3: "three matrices"}[sharing.n_matrices]
    return (
        '<svg viewBox="0 0 120 64" role="img" class="ak-diagram" '
        f'aria-label="{sharing.value}: {count}. {sharing.meaning}">'
        f"{''.join(lines + boxes + roles)}</svg>"
    )


def _centre(sharing: Sharing, members: tuple[Role, ...]) -> float:
    """Where a matrix stands: over its roles, but Q=V beside K's, which stands between them."""
    if sharing is Sharing.Q_V:
        return 40 if len(members) == 2 else 84
    return sum(_ROLE_X[role] for role in members) / len(members)
