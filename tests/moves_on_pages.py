"""Moves of an attacker that happen on pages: forged values, choices, resets, looks inside."""

from __future__ import annotations

import threading
from contextlib import suppress

from attackers import (
    PAGES,
    REFUSED,
    answer,
    attacker,
    large_experiment,
    link_of,
    rerun,
)
from forging import TYPED, forged_run, forged_states
from moves import move, training_move
from streamlit.proto.BackMsg_pb2 import BackMsg
from visitor import Visitor

OWNER_SECRET = "secret of a test copy"
"""The secret of the owner's page, which only the move `owner_buttons` knows."""


@move
def reconnects(me):
    """Connect, request a page and go, with the same session again or with a new one."""
    with_session = me.random.random() < 0.7

    def act(one):
        session = ""
        while one.left:
            with attacker(one.port, source=one.source, session=session) as connection:
                connection.send(rerun(page_name=one.random.choice(PAGES)))
                one.counts["opened"] += 1
                begun = answer(connection, "new_session", 5.0)
                if begun is not None and with_session:
                    session = begun.new_session.initialize.session_id
                if one.random.random() < 0.5:
                    answer(connection, "script_finished", 5.0)

    me.together(me.random.randint(4, 20), act)


@training_move
def forged_values(me):
    """Forge the values of a page's widgets, its context and its address; also press buttons."""

    def act(one):
        with one.tab(page=one.random.choice(PAGES)) as tab:
            widgets = [*tab.widgets(), "", TYPED, f"$$ID-{'0' * 32}-capacity_x"]
            for _ in range(20):
                if not one.left:
                    return
                with suppress(AssertionError):  # a page that does not answer in time
                    tab.send(_forged(one.random, widgets))
                    one.counts["messages"] += 1
                    tab.watch(0.1)

    me.together(me.random.randint(2, 6), act)


def _forged(drawn, widgets):
    names = drawn.sample(widgets, min(len(widgets), drawn.randint(1, 8)))
    states = forged_states(drawn, dict.fromkeys(names, ("", (TYPED,))))
    return rerun(widget_states=states, **(forged_run(drawn) if drawn.random() < 0.3 else {}))


@training_move
def resets(me):
    """Press Reset over and over on a large experiment, then leave."""
    link, n_presses = link_of(large_experiment(me.random)), me.random.randint(30, 80)
    me.counts["resets"] += 0
    with suppress(*REFUSED), me.tab(link) as tab:
        tab.press("train")
        for _ in range(n_presses):
            if not me.left:
                return
            tab.hurry("reset")
            me.counts["resets"] += 1
            tab.watch(0.25)


@training_move
def large_experiments(me):
    """Train experiments near the limit of memory, a tab each."""

    def act(one):
        sizes = one.random.choice(((250, 400), (400, 700), (700, 1000)))
        experiment = large_experiment(one.random, *sizes)
        with one.tab(link_of(experiment)) as tab:
            tab.press("train")
            tab.watch(min(one.left, one.random.uniform(5, 20)))
            said = " ".join(tab.texts())
            one.counts["begun"] += tab.progress() > 0
            one.counts["not accepted"] += "not accepted" in said
            one.counts["failed"] += "Training failed" in said

    me.together(me.random.randint(1, 4), act)


@training_move
def looks_inside(me):
    """Look inside one large run from many tabs, with new choices all the time."""
    experiment = large_experiment(me.random, 100, 900)
    pause = me.random.choice((None, 0.2))
    with suppress(*REFUSED), me.tab(link_of(experiment)) as lab:
        lab.press("train")
        lab.watch(min(3.0, me.left), lambda: lab.progress() > 0)

        def act(one):
            page = one.random.choice(("attention", "asymmetry", "similarity", "surgery", "lab"))
            with one.tab(lab.link or link_of(experiment), page) as tab:
                while one.left:
                    tab.choose(one.random, pause)
                    one.counts["choices"] += 1

        watching = threading.Thread(target=lambda: lab.watch(me.left), daemon=True)
        watching.start()
        me.together(me.random.randint(4, 8), act)
        watching.join()


@move
def new_choices(me):
    """Make ever new choices on Atlas and other pages, of what their widgets offer."""
    pages = ("atlas", "atlas", "atlas", "capacity", "questions", "runs", "variants")
    pause = me.random.choice((None, 0.3))

    def act(one):
        page = one.random.choice(pages)
        with one.tab(page=page) as tab:
            while one.left:
                tab.choose(one.random, pause)
                one.counts[f"choices on {page}"] += 1

    me.together(me.random.randint(10, 30), act)


@move
def owner_buttons(me):
    """Press the owner's buttons in a tab that has signed out, to stop the jobs of others."""
    with (
        suppress(*REFUSED),
        OwnerTab(me.port, "", "owner", 30, source_address=(me.source, 0)) as tab,
    ):
        tab.press_again(me)


class OwnerTab(Visitor):
    """A tab that signs in, chooses somebody's jobs, and stops them while and after it signs out."""

    def press_again(self, me):
        """Press the button that stops all jobs of another address, until the deadline."""
        self._states[self.find("owner_secret").id] = ("string_value", OWNER_SECRET)
        self.press("owner_sign_in")
        self.wait_for("the owner's page", lambda: self.has("owner_address"))
        jobs, button = self.find("owner_address"), self.find("owner_address_stop").id
        fragments = ["", *{node.fragment for node in self._nodes.values()}]
        others = [text for text in jobs.options if not text.startswith(me.source)]
        stopping = [
            {"id": jobs.id, "string_value": "".join(others[:1])},
            {"id": button, "trigger_value": True},
        ]
        states = [{"id": self.find("owner_sign_out").id, "trigger_value": True}, *stopping]
        while me.left:
            fields = {"page_script_hash": self._page_hash, "widget_states": {"widgets": states}}
            message = BackMsg(rerun_script={**fields, "fragment_id": me.random.choice(fragments)})
            self._socket.send(message.SerializeToString())
            me.counts["presses"] += 1
            self.watch(0.3)
            states = stopping
