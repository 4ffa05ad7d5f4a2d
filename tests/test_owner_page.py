"""The owner's page: who sees it, who gets in, what it shows and stops."""

import json
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest
from browsing import OWNER_SECRET
from streamlit.testing.v1 import AppTest

from attnkit.bench.visitor import Visitor
from attnkit.experiment import Experiment
from attnkit.service import logs
from attnkit.service.jobs import Watcher
from attnkit.service.server import server_settings
from attnkit.service.store import Unavailable
from attnkit.ui import owner
from attnkit.ui.owner import gate, n_sessions, queue_table, store_megabytes
from attnkit.ui.service import training_service
from attnkit.ui.storage import result_store

pytestmark = pytest.mark.server

DASHBOARD = str(Path(__file__).parents[1] / "dashboard.py")
SECRET = "correct horse"
LONG = Experiment(task="phonebook", steps=20_000, n_seeds=1, sharing=["QKV", "Q=K"], first_seed=977)


@pytest.fixture(scope="module", autouse=True)
def service(tmp_path_factory):
    """The training process of all pages here, with a store of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ATTNKIT_STORE", str(tmp_path_factory.mktemp("store")))
        forget()
        with closing(training_service()) as opened:
            yield opened
    forget()


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    """A copy with a page for its owner, whom nobody has kept out yet."""
    monkeypatch.setenv("ATTNKIT_OWNER_SECRET", SECRET)
    server_settings.cache_clear()
    gate.clear()
    yield SECRET
    monkeypatch.undo()
    server_settings.cache_clear()
    gate.clear()


def forget():
    """What a server makes once."""
    server_settings.cache_clear()
    for made in (training_service, result_store, store_megabytes):
        made.clear()


def visit():
    """Open the page by its address."""
    tab = show(AppTest.from_file(DASHBOARD, default_timeout=60))
    tab.switch_page("pages/owner.py")
    return show(tab)


def show(tab):
    """Run the page; it must not fail."""
    tab.run()
    assert not tab.exception
    return tab


def sign_in(tab, secret):
    """Type a secret and press Sign in."""
    tab.text_input(key="owner_secret").set_value(secret)
    tab.button(key="owner_sign_in").click()
    return show(tab)


def is_in(tab):
    """Whether the page shows what only the owner may see."""
    return bool(tab.metric) and not tab.text_input


def numbers(tab):
    """The numbers on top."""
    return {metric.label: metric.value for metric in tab.metric}


def going(service):
    """An experiment that trains until it is stopped."""
    job = service.look(service.submit(LONG))
    while job.step == 0:
        job = service.wait(job.id, job.version, 60)
    return job


def test_without_a_secret_there_is_no_page(monkeypatch):
    """Nor a place in the navigation; whoever finds the file by its address is led to the Lab."""
    tab = visit()
    monkeypatch.delenv("ATTNKIT_OWNER_SECRET")
    server_settings.cache_clear()
    tab.session_state["owner"] = True
    assert [title.value for title in show(tab).title] != ["Owner"]
    assert not tab.text_input
    assert not tab.metric
    tab = show(AppTest.from_file(DASHBOARD, default_timeout=60))
    with pytest.raises(ValueError, match="Could not find a navigation page"):
        tab.switch_page("pages/owner.py")


def test_the_secret_opens_and_sign_out_shuts():
    """For this session only; a stranger sees a door, and no number, name or setting."""
    tab = visit()
    assert not is_in(tab)
    assert not tab.dataframe
    assert [title.value for title in tab.title] == ["Owner"]
    assert is_in(sign_in(tab, SECRET))
    assert is_in(show(tab))
    assert not is_in(visit())
    tab.button(key="owner_sign_out").click()
    assert not is_in(show(tab))


def test_a_wrong_secret_keeps_its_own_address_waiting_and_nobody_else(monkeypatch):
    """It is said once; whoever is in stays in, and the owner gets in from elsewhere."""
    inside = sign_in(visit(), SECRET)
    monkeypatch.setattr(owner, "session_address", lambda: "198.51.100.7")
    tab = sign_in(visit(), "a guess")
    assert "That is not the secret. Your network can try again in" in tab.error[0].value
    assert not is_in(tab)
    assert not any("not the secret" in error.value for error in show(tab).error)
    assert not is_in(sign_in(visit(), SECRET))
    assert is_in(show(inside))
    monkeypatch.setattr(owner, "session_address", lambda: "192.0.2.1")
    assert is_in(sign_in(visit(), SECRET))


def test_signing_in_and_wrong_secrets_are_told_without_the_secret(capsys, monkeypatch):
    """Attempts while an address waits are not logged, so that nobody can fill the log."""
    monkeypatch.setenv("ATTNKIT_LOG_LEVEL", "info")
    server_settings.cache_clear()
    logs._logger.cache_clear()
    for _ in range(4):
        owner.sign_in("a wrong secret")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["owner refused"]
    assert "a wrong secret" not in str(lines)
    logs._logger.cache_clear()


def test_the_owner_sees_the_queue_and_can_stop_an_experiment(service):
    """Numbers, versions and settings, and no secret among them; one is stopped for good."""
    job = going(service)
    tab = sign_in(visit(), SECRET)
    shown = numbers(tab)
    assert (shown["Training"], shown["Queued"]) == ("1", "0")
    assert all(float(shown[name].replace(",", "")) > 0 for name in shown if name.endswith("s, MB"))
    queue, settings = (table.value for table in tab.dataframe)
    row = queue[queue["hash"] == job.experiment.hash].iloc[-1]
    assert (row["state"], row["runs"], row["steps"]) == ("running", 2, 20_000)
    assert 0 < row["done"] < 100
    assert "ATTNKIT_MAX_STEPS" in set(settings["variable"])
    assert any("streamlit 1." in text.value for text in tab.markdown)
    assert SECRET not in str([settings, queue, tab.markdown])
    assert tab.button(key="owner_stop").disabled
    tab.selectbox(key="owner_chosen").set_value(job.id)
    show(tab)
    tab.button(key="owner_stop").click()
    show(tab)
    assert service.look(job.id).state == "stopped"
    assert tab.button(key="owner_stop").disabled
    assert service.overview()[-1]["state"] == "stopped"


def test_the_owner_can_stop_all_of_one_address(service):
    """Chosen by its name, with the number of its experiments; others go on."""
    script = [Watcher(f"tab {n}", f"script {n}", "198.51.100.7") for n in range(2)]
    ids = [service.submit(LONG.replace(first_seed=n), watcher=script[n]) for n in range(2)]
    other = service.submit(LONG, watcher=Watcher("t", "Anna", "203.0.113.9"))
    tab = sign_in(visit(), SECRET)
    assert tab.button(key="owner_stop_address").disabled
    assert "198.51.100.7: 2" in tab.selectbox(key="owner_address").options
    tab.selectbox(key="owner_address").set_value("198.51.100.7")
    show(tab)
    tab.button(key="owner_stop_address").click()
    show(tab)
    assert [service.look(job_id).state for job_id in ids] == ["stopped"] * 2
    assert not service.look(other).over
    service.stop(other)


def test_a_store_that_does_not_answer_or_began_anew_is_said():
    """The rest of the page is there, and nothing in a note is markup."""
    store_megabytes.clear()
    with patch.object(type(result_store()), "n_bytes", side_effect=Unavailable("the disk is full")):
        tab = sign_in(visit(), SECRET)
    assert [w.value for w in tab.warning] == ["The store does not answer: the disk is full."]
    assert numbers(tab)["Store, MB"] == "–"
    store_megabytes.clear()
    with patch.object(result_store(), "notes", ["results.sqlite: its table `results` is gone."]):
        tab = sign_in(visit(), SECRET)
    (said,) = [warning.value for warning in tab.warning]
    assert said.startswith("The store began anew. ")
    assert "\\`results\\`" in said


def test_an_empty_queue_is_a_table_without_rows():
    """Nothing was trained yet."""
    table = queue_table([])
    assert len(table) == 0
    assert list(table.columns)[:2] == ["state", "place"]


def ask_for_sessions(port):
    """What the server on a port tells."""
    options = {"server.port": port, "server.address": None, "server.baseUrlPath": ""}
    with patch("attnkit.ui.owner.st.get_option", options.get):
        return n_sessions()


def test_tabs_are_counted_on_a_real_server(port):
    """Streamlit tells how many are connected, and a hidden page is reached by its address."""
    assert ask_for_sessions(1) is None  # nobody listens
    before = ask_for_sessions(port)
    with Visitor(port) as first, Visitor(port, page="owner") as second:
        second.set("owner_secret", OWNER_SECRET)
        second.press("owner_sign_in")
        assert not [*first.exceptions, *second.exceptions]
        assert second.has("owner_stop")
        assert ask_for_sessions(port) == before + 2
