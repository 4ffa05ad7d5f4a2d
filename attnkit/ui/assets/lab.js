// What the Lab adds to Streamlit's own widgets: the button that opens the sidebar is called Settings,
// the focus stays in the bar when the button that has it is switched off, and a paste of more data
// than this copy takes is refused with a message, because a long message ends the connection.

import { mounted } from "./panels.js";
import showBoard from "./board.js";
import MESSAGES from "./messages.json" with { type: "json" };
import { tr } from "./language.js";

const OPENER = "[data-testid=stExpandSidebarButton]";
const PASTED = ".st-key-own_text textarea";
const INSTEAD = { train: ["pause", "stop"], pause: ["train"], step: ["pause", "train"], stop: ["train"] };

// The board's own component is small: it finds what draws the board here, see late.js.
(window.attnkitBoards ??= {})[MESSAGES.language] = showBoard;

export default function showLab({ parentElement }) {
  return mounted(parentElement, "ak-lab", watchButtons).gone;
}

function watchButtons() {
  const state = { home: null, moving: false }, ends = new AbortController();
  const listeners = {
    click: ({ target }) => (state.home = keyOf(target)),
    focusin: ({ target }) => state.moving || (state.home = keyOf(target)),
    focusout: ({ target }) => state.moving || target.disabled || (state.home = null),
    paste: refuseLongPaste,
    input: ({ target }) => target.matches?.(PASTED) && target.setCustomValidity(""),
  };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, { capture: true, signal: ends.signal });
  const switched = new MutationObserver(() => keepFocus(state)), header = new MutationObserver(nameOpener);
  switched.observe(document.body, { subtree: true, attributeFilter: ["disabled"] });
  header.observe(document.querySelector("[data-testid=stHeader]"), { subtree: true, childList: true });
  nameOpener();
  const rename = () => document.querySelector(OPENER)?.setAttribute("aria-label", "Expand sidebar");
  state.ends = [() => ends.abort(), () => switched.disconnect(), () => header.disconnect(), rename];
  return state;
}

const nameOpener = () => document.querySelector(OPENER)?.setAttribute("aria-label", tr("Settings"));

/** Refuse a paste into the field of own data after which it would have too many bytes. */
function refuseLongPaste(event) {
  const area = event.target;
  if (!area.matches?.(PASTED)) return;
  const most = Number(area.closest("[class*=st-key-own_bytes_]").className.match(/own_bytes_(\d+)/)[1]);
  const rest = area.value.length - (area.selectionEnd - area.selectionStart);
  const size = new TextEncoder().encode(event.clipboardData.getData("text")).length + rest;
  if (size <= most) return;
  event.preventDefault();
  area.setCustomValidity(tr("These are {size:,} bytes, but at most {most:,} fit here.", { size, most }));
  area.reportValidity();
}

/** The key of the button of the bar that a node belongs to, or null. */
function keyOf(node) {
  const button = node.closest?.(".st-key-actions button")?.closest("[class*=st-key-]");
  return button ? button.className.match(/st-key-(\w+)/)[1] : null;
}

/** Move the focus to what takes the place of the button that was pressed, and back. */
function keepFocus(state) {
  const at = document.activeElement, others = INSTEAD[state.home] ?? [];
  const stays = at !== document.body && !at.disabled && !others.includes(keyOf(at));
  if (!state.home || stays) return;
  const buttons = [state.home, ...others].flatMap((key) => [...document.querySelectorAll(`.st-key-actions .st-key-${key} button`)]);
  const wanted = buttons.find((button) => !button.disabled && button.checkVisibility());
  if (!wanted || wanted === at) return;
  state.moving = true;
  wanted.focus({ preventScroll: true });
  state.moving = false;
}
