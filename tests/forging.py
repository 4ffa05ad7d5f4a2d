"""Messages and values that no browser sends, drawn from a seed."""

import json
import math

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates

TYPED = "typed-by-an-attacker"
"""A text in what attackers type, which no log may repeat."""

TEXTS = ("", " ", TYPED, "-1", "1e400", "QKV", "\x00", "’\u202e", "http://[", "x" * 10**5)
NUMBERS = (0, -1, 1, 2.5, 1e9, -1e300, 10**12, math.nan, math.inf, -math.inf)
WHOLE = (0, -1, 1, 7, 2**31, -(2**63), 2**63 - 1)
EVENTS = ("picked", "chosen", "resend", "selection", "value", "event", "layer", "query_index")


def message(**fields):
    """Encode a message of the given kind, such as `clear_cache=True`."""
    return BackMsg(**fields).SerializeToString()


def rerun(**fields):
    """Encode a message that draws a page."""
    return message(rerun_script={"widget_states": {}, **fields})


def forged_text(draw, depth=0):
    """Return JSON of no meaning as it is sent, sometimes broken or deep."""
    leaves = ("null", "[[[", "NaN", '{"picked": 1e999}', *map(json.dumps, (*TEXTS[:-1], *WHOLE)))
    kind = draw.randrange(6)
    if depth > 3 or kind > 3:
        return draw.choice(leaves)
    members = [forged_text(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 3:
        pairs = zip(draw.sample(EVENTS, 3), members, strict=False)
        return f"{{{', '.join(f'{json.dumps(name)}: {one}' for name, one in pairs)}}}"
    listed = f"[{', '.join(members)}]"
    return f'{{"selection": {{"rows": {listed}, "cells": {listed}}}}}' if kind == 2 else listed


def forged_run(draw):
    """Return the fields of a message that draws a page, whose address, place and clock are odd."""
    texts = (*TEXTS, "%ff&v=%00", "?embed=true&embed_options=x", "a/../owner", "[::1", "\ud7ff")
    addresses = ("http://[", "http://a:99999999/", "//", "javascript:0", "http://\x00/", "http:///")
    return {
        "context_info": {
            "url": draw.choice((*addresses, *texts)),
            "timezone": draw.choice(("Mars/Phobos", "../../etc/passwd", *texts)),
            "timezone_offset": draw.choice((0, -(2**31), 2**31 - 1)),
            "locale": draw.choice(("xx_YY", *texts)),
        },
        "query_string": draw.choice(texts),
        "page_script_hash": draw.choice(texts),
        "page_name": draw.choice(texts),
        "fragment_id": draw.choice(("", "", "gone")),
        "cached_message_hashes": draw.choices(TEXTS[:-1], k=draw.choice((0, 3, 500))),
        "is_history_navigation": draw.random() < 0.5,
    }


def forge(draw, widget, field="", options=()):
    """Return a state of a widget, of the kind `field` or of any, sometimes one of its options."""
    kinds = [one.name for one in WidgetState.DESCRIPTOR.oneofs_by_name["value"].fields]
    field = field or draw.choice(kinds)
    texts = draw.choices((*TEXTS[:-1], *options), k=draw.choice((0, 1, 2, 3, 2000)))
    values = {
        "json_value": forged_text(draw),
        "json_trigger_value": forged_text(draw),
        "string_value": draw.choice((*TEXTS, *options, forged_text(draw))),
        "trigger_value": draw.random() < 0.8,
        "bool_value": draw.random() < 0.8,
        "double_value": draw.choice(NUMBERS),
        "int_value": draw.choice(WHOLE),
        "bytes_value": draw.randbytes(9),
        "string_array_value": {"data": texts},
        "double_array_value": {"data": draw.choices(NUMBERS, k=3)},
        "int_array_value": {"data": draw.choices(WHOLE, k=3)},
        "string_trigger_value": {"data": draw.choice(TEXTS)},
    }
    return WidgetState(id=widget, **{field: values.get(field, {})})


def forged_states(draw, widgets, share=1.0):
    """Return states of a share of the widgets, whose kinds of value and options are given by id.

    Some states name a widget as Streamlit does not: by its key, or by any text.
    """
    keys = [widget.split("-", maxsplit=2)[-1] for widget in widgets]
    states = [
        forge(draw, widget, field if draw.random() < 0.8 else "", options)
        for widget, (field, options) in widgets.items()
        if draw.random() < share
    ]
    states += [
        forge(draw, draw.choice((*TEXTS[:-1], *keys))) for _ in range(draw.choice((0, 0, 2)))
    ]
    return WidgetStates(widgets=states)
