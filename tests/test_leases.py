"""Who watches what, by a clock that the tests hold."""

from attnkit.live.leases import WATCHED_SECONDS, Leases


def test_a_tab_that_is_there_watches_for_ever():
    """Whatever page it shows: it need not look again."""
    leases = Leases()
    leases.arrive("tab")
    leases.look("job", "tab", 5.0)
    assert leases.watched_until("job") == float("inf")
    assert leases.n_watchers("job", 10_000.0) == 1


def test_a_tab_that_left_has_watched_until_then():
    """From then on the lease runs."""
    leases = Leases()
    leases.arrive("tab")
    leases.look("job", "tab", 5.0)
    leases.leave("tab", 100.0)
    assert leases.watched_until("job") == 100.0
    assert leases.n_watchers("job", 100.0 + WATCHED_SECONDS + 1) == 0


def test_a_tab_that_comes_back_goes_on():
    """A dropped socket is no end."""
    leases = Leases()
    leases.arrive("tab")
    leases.look("job", "tab", 5.0)
    leases.leave("tab", 100.0)
    leases.arrive("again")
    leases.look("job", "again", 101.0)
    assert leases.watched_until("job") == float("inf")


def test_who_never_arrived_must_look_again():
    """Programs hold what they look at for a while only."""
    leases = Leases()
    leases.look("job", "", 5.0)
    assert leases.watched_until("job") == 5.0
    assert leases.watched_until("other") == 0.0


def test_who_is_no_tab_is_no_watcher():
    """Nobody's view is held by a program."""
    leases = Leases()
    leases.look("job", "", 5.0)
    leases.look("job", "tab", 5.0)
    assert leases.n_watchers("job", 6.0) == 1
    assert leases.n_watchers("job", 6.0, but="tab") == 0


def test_who_turns_away_watches_no_more():
    """Though the tab is there."""
    leases = Leases()
    leases.arrive("tab")
    leases.look("job", "tab", 5.0)
    leases.turn_away("job", "tab")
    assert leases.watched_until("job") == 0.0


def test_tabs_that_are_gone_are_forgotten():
    """Memory is bounded; a tab that is there is not forgotten."""
    leases = Leases()
    for tab in ("here", "gone"):
        leases.arrive(tab)
    leases.leave("gone", 10.0)
    leases.forget_tabs(11.0)
    assert leases.n_tabs == 1
