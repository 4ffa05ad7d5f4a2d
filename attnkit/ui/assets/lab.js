// What the Lab adds to Streamlit's own buttons: the one that opens the sidebar is called Settings,
// and the focus stays in the bar when the button that has it is switched off.

import { once, states, whenGone } from "./panels.js";
import showBoard from "./board.js";
import { saveMenu } from "./save.js";

const OPENER = "[data-testid=stExpandSidebarButton]";
const INSTEAD = { train: ["pause", "stop"], pause: ["train"], step: ["pause", "train"], stop: ["train"] };

// The board's own component is small: it finds what draws the board here, see late.js.
window.attnkitBoard = showBoard;
window.attnkitSave = saveMenu;

export default function showLab({ parentElement }) {
  const root = once(parentElement, "div", "ak-lab");
  let state = states.get(root);
  if (!state) {
    state = { home: null, moving: false };
    states.set(root, state);
    const listeners = {
      click: ({ target }) => (state.home = keyOf(target)),
      focusin: ({ target }) => state.moving || (state.home = keyOf(target)),
      focusout: ({ target }) => state.moving || target.disabled || (state.home = null),
    };
    for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
    const switched = new MutationObserver(() => keepFocus(state)), header = new MutationObserver(nameOpener);
    switched.observe(document.body, { subtree: true, attributeFilter: ["disabled"] });
    header.observe(document.querySelector("[data-testid=stHeader]"), { subtree: true, childList: true });
    nameOpener();
    state.end = () => {
      for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
      switched.disconnect();
      header.disconnect();
      document.querySelector(OPENER)?.setAttribute("aria-label", "Expand sidebar");
      states.delete(root);
    };
  }
  return whenGone(root, state.end);
}

const nameOpener = () => document.querySelector(OPENER)?.setAttribute("aria-label", "Settings");

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
