"""The owner's page: who sees it, who gets in and how often anybody may try, what it stops."""

import json
import time
from contextlib import nullcontext
from unittest.mock import Mock, patch

import pytest
from browsing import OWNER_SECRET
from idle import idle_service, open_page, show, visit
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from waiting import wait_until

from attnkit.experiment import Experiment
from attnkit.service.jobs import Watcher
from attnkit.service.server import server_settings
from attnkit.service.store import Unavailable
from attnkit.ui.server import service
from attnkit.ui.server.service import Gate, gate, result_store, store_megabytes, training_service

ADDRESS, ELSEWHERE = "198.51.100.7", "203.0.113.9"
UNENDING = Experiment(task="phonebook", steps=20_000, n_seeds=1, sharing=["QKV", "Q=K"])


@pytest.fixture(autouse=True)
def _secret(request, monkeypatch, tmp_path):
    """A copy with a page for its owner, whom nobody has kept out yet; it may train something."""
    trains = "pages_service" in request.fixturenames
    with nullcontext() if trains else idle_service(tmp_path):
        monkeypatch.setenv("ATTNKIT_OWNER_SECRET", OWNER_SECRET)
        server_settings.cache_clear()
        gate.clear()
        store_megabytes.clear()
        yield
        gate.clear()


def sign_in(tab, secret=OWNER_SECRET):
    """Type a secret and press Sign in."""
    tab.text_input(key="owner_secret").set_value(secret)
    tab.button(key="owner_sign_in").click()
    return show(tab)


def is_in(tab):
    """Whether the page shows what only the owner may see."""
    return bool(tab.metric) and not tab.text_input


def test_without_a_secret_there_is_no_page(monkeypatch):
    """Nor a place in the navigation; whoever finds the file by its address is led to the Lab."""
    tab = open_page("owner")
    monkeypatch.delenv("ATTNKIT_OWNER_SECRET")
    server_settings.cache_clear()
    tab.session_state["owner"] = True
    assert [title.value for title in show(tab).title] != ["Owner"]
    assert not [*tab.text_input, *tab.metric]
    with pytest.raises(ValueError, match="Could not find a navigation page"):
        visit().switch_page("pages/owner.py")


def test_a_wrong_secret_keeps_its_own_address_waiting_and_nobody_else(capsys, monkeypatch):
    """Whoever is in stays in, and the owner gets in from elsewhere; the log has one line of it."""
    inside = sign_in(open_page("owner"))
    clock = Mock(monotonic=Mock(return_value=time.monotonic()))
    monkeypatch.setattr(service, "time", clock)  # a slow machine does not end the wait
    monkeypatch.setenv("ATTNKIT_LOG_LEVEL", "info")
    server_settings.cache_clear()
    tab = open_page("owner")
    capsys.readouterr()  # AppTest itself warns when it is made
    monkeypatch.setattr(service, "session_address", lambda: ADDRESS)
    sign_in(tab, "a wrong guess")
    (told,) = tab.error
    assert not is_in(tab)
    assert not tab.dataframe
    assert told.value not in [error.value for error in show(tab).error]  # it is said once
    assert not is_in(sign_in(tab))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["owner refused"]
    assert "a wrong guess" not in str(lines)
    assert is_in(show(inside))
    monkeypatch.setattr(service, "session_address", lambda: ELSEWHERE)
    assert is_in(sign_in(tab))


@pytest.mark.server
def test_the_owner_sees_the_queue_and_stops_one_experiment_or_all_of_an_address(pages_service):
    """Numbers, versions and settings, and no secret among them; others go on."""
    of_address = [Watcher(f"tab {n}", f"script {n}", ADDRESS) for n in range(2)]
    watchers = [*of_address, Watcher("t", "Anna", ELSEWHERE), Watcher("u", "Ben", ELSEWHERE)]
    some = [UNENDING.replace(first_seed=970 + n) for n in range(4)]
    ids = [pages_service.submit(o, watcher=w) for o, w in zip(some, watchers, strict=True)]
    job = wait_until(pages_service, ids[0], lambda job: job.step > 0)
    tab = sign_in(open_page("owner"))
    shown = {metric.label: metric.value for metric in tab.metric}
    assert (shown["Training"], shown["Queued"]) == ("4", "0")
    assert all(float(shown[name].replace(",", "")) > 0 for name in shown if name.endswith("s, MB"))
    queue, settings = (table.value for table in tab.dataframe)
    row = queue[queue["hash"] == job.experiment.hash].iloc[-1]
    assert (row["state"], row["runs"], row["steps"]) == ("running", 2, 20_000)
    assert 0 < row["done"] < 100
    assert "ATTNKIT_MAX_STEPS" in set(settings["variable"])
    assert any("streamlit 1." in text.value for text in tab.markdown)
    assert OWNER_SECRET not in str([settings, queue, tab.markdown])
    assert f"{ADDRESS}: 2" in tab.selectbox(key="owner_address").options

    for box, chosen in (("owner_chosen", ids[3]), ("owner_address", ADDRESS)):
        assert tab.button(key=f"{box}_stop").disabled
        tab.selectbox(key=box).set_value(chosen)
        show(tab).button(key=f"{box}_stop").click()
        assert show(tab).button(key=f"{box}_stop").disabled
    states = [pages_service.job(job_id).state == "stopped" for job_id in ids]
    assert states == [True, True, False, True]
    pages_service.stop(ids[2])


def test_buttons_act_for_the_owner_only_at_the_moment_of_the_press():
    """After signing out, in a later message or in the same one, a press stops nothing."""
    watcher = Watcher("v", "Cem", ELSEWHERE)
    job = training_service().submit(UNENDING.replace(first_seed=990), watcher=watcher)
    tab = sign_in(open_page("owner"))
    for box, chosen in (("owner_chosen", job), ("owner_address", ELSEWHERE)):
        tab.selectbox(key=box).set_value(chosen)
    show(tab)
    keys = ("sign_out", "chosen_stop", "address_stop")
    buttons = [tab.button(key=f"owner_{key}") for key in keys]
    presses = [WidgetState(id=button.id, trigger_value=True) for button in buttons]
    for message in (presses, presses[1:]):
        tab._run(WidgetStates(widgets=message))
        assert not tab.exception
        assert not is_in(tab)
        assert training_service().job(job).state != "stopped"


def test_a_store_that_does_not_answer_or_began_anew_is_said():
    """The rest of the page is there, and nothing in a note is markup."""
    with patch.object(type(result_store()), "n_bytes", side_effect=Unavailable("the disk is full")):
        tab = sign_in(open_page("owner"))
    assert ["the disk is full" in warning.value for warning in tab.warning] == [True]
    assert "–" in [metric.value for metric in tab.metric if metric.label == "Store, MB"]
    store_megabytes.clear()
    with patch.object(result_store(), "notes", ["results.sqlite: its table `results` is gone."]):
        (said,) = [warning.value for warning in show(tab).warning]
    assert "\\`results\\`" in said


@pytest.fixture
def clock(monkeypatch):
    """The clock of gates, as a list of one number; attempts wait without letting time pass."""
    now, delays = [1000.0], []
    monkeypatch.setattr(service, "time", Mock(monotonic=lambda: now[0], sleep=delays.append))
    return now, delays


def test_a_gate_opens_for_its_secret_only_and_a_wrong_one_makes_its_address_wait(
    clock, monkeypatch
):
    """Twice as long after each, at most ten minutes; the right secret forgives."""
    now, _ = clock
    for wrong in ("", "correct", "correct horse ", "CORRECT HORSE", "\ud800"):
        assert not Gate("correct horse").opens(wrong)
    assert not Gate("").opens("")
    assert Gate("über-Ångström").opens("über-Ångström", ADDRESS)
    gate, waits = Gate("correct horse"), []
    for _ in range(12):
        assert not gate.opens("wrong", ADDRESS)
        waits.append(gate.shut_seconds(ADDRESS))
        assert not any([gate.opens("wrong", ADDRESS), gate.opens("correct horse", ADDRESS)])
        assert gate.shut_seconds(ELSEWHERE) == 0
        now[0] += waits[-1]
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]
    assert gate.opens("correct horse", ADDRESS)
    assert not gate.opens("wrong", ADDRESS)
    monkeypatch.setattr(service, "MOST_ADDRESSES", 2)
    for address in "abc":
        gate.opens("wrong", address)
    now[0] += 3.5
    assert [gate.shut_seconds(address) > 0 for address in "abc"] == [False, True, True]


def test_attempts_of_many_addresses_pass_once_a_second_and_are_then_refused(clock):
    """The right secret among them too, so that the time of an answer tells nothing."""
    gate, (_, delays) = Gate("correct horse"), clock
    opened = [gate.opens("correct horse", f"192.0.2.{number}") for number in range(20)]
    assert opened == [True] * 11 + [False] * 9
    assert delays == [*range(int(service.LONGEST_DELAY) + 1)]
    assert gate.shut_seconds("203.0.113.9") == 1.0
