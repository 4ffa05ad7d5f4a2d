"""Who watches what, by a clock that the tests hold."""

from attnkit.service.jobs import NOBODY, Watcher
from attnkit.service.leases import WATCHED_SECONDS, Leases

TAB, OTHER = Watcher("tab", "Anna"), Watcher("other", "Bert")


def test_a_job_is_closed_when_the_last_tab_that_cares_for_it_has_left():
    """Not while another one is there, nor if a program looks at it."""
    leases = Leases()
    for tab, watcher in (("tab", TAB), ("other", OTHER)):
        leases.arrive(tab)
        leases.look("job", watcher, 5.0)
    leases.leave("tab", 100.0)
    assert leases.left_at("job") == float("inf")
    leases.leave("other", 200.0)
    assert leases.left_at("job") == 200.0
    leases.look("job", NOBODY, 201.0)
    assert leases.left_at("job") == leases.left_at("unknown") == float("inf")


def test_a_tab_that_is_there_watches_for_ever():
    """It need not look again; when it has left, the lease runs; a dropped socket is no end."""
    leases = Leases()
    leases.arrive("tab")
    leases.look("job", TAB, 5.0)
    assert leases.watched_until("job") == float("inf")
    assert leases.n_watchers("job", 10_000.0) == 1
    leases.leave("tab", 100.0)
    assert leases.watched_until("job") == 100.0
    assert leases.n_watchers("job", 100.0 + WATCHED_SECONDS + 1) == 0
    leases.arrive("again")
    leases.look("job", Watcher("again", "Anna"), 101.0)
    assert leases.watched_until("job") == float("inf")
    leases.turn_away("job", Watcher("again", "Anna"))
    assert leases.watched_until("job") == 0.0


def test_who_is_no_tab_is_no_watcher():
    """Nobody's view is held by a program, which must look again and again."""
    leases = Leases()
    leases.look("job", NOBODY, 5.0)
    assert leases.watched_until("job") == 5.0
    assert leases.watched_until("other") == 0.0
    leases.look("job", TAB, 5.0)
    assert leases.n_watchers("job", 6.0) == 1
    assert leases.n_watchers("job", 6.0, but=TAB) == 0


def test_a_tab_that_one_has_left_is_no_other_watcher():
    """Who reloads the page is alone with their run, and may hold it."""
    leases = Leases()
    leases.arrive("tab")
    leases.look("job", TAB, 5.0)
    leases.leave("tab", 6.0)
    again = Watcher("again", "Anna")
    leases.arrive("again")
    leases.look("job", again, 7.0)
    assert leases.n_watchers("job", 8.0, but=again) == 0
    leases.look("job", OTHER, 7.0)
    assert leases.n_watchers("job", 8.0, but=again) == 1
    leases.turn_away("job", again)
    leases.turn_away("job", OTHER)
    assert leases.watched_until("job") == 0.0


def test_who_was_cut_off_counts_for_as_long_as_asked():
    """A run is not ended for those who come back in a minute."""
    leases = Leases()
    leases.look("job", OTHER, 5.0)
    assert leases.n_watchers("job", 65.0) == 0
    assert leases.n_watchers("job", 65.0, within=120.0) == 1


def test_tabs_that_are_gone_are_forgotten():
    """Memory is bounded; a tab that is there is not forgotten."""
    leases = Leases()
    for tab in ("here", "gone"):
        leases.arrive(tab)
        leases.look("job", Watcher(tab), 5.0)
    leases.leave("gone", 10.0)
    leases.forget_tabs(11.0)
    assert leases.n_watchers("job", 11.0) == 1
    assert leases.n_watchers("job", 11.0, within=100.0) == 1
