// One card per variant: what is tied.
// data: {cards: [{name, text, diagram, color, note}], narrowest}

import { columnsFor, mounted, onWidth, setTextForm, unpacked } from "./panels.js";
import { el } from "./ink.js";

export default function showCards({ data: packed, parentElement }) {
  const { root, state, gone } = mounted(parentElement, "ak-cards", (root) => {
    const made = { ends: [onWidth(root, () => arrange(root, made))] };
    return made;
  });
  state.data = unpacked(packed);
  const drawn = JSON.stringify(state.data.cards);
  if (state.drawn !== drawn) root.replaceChildren(...state.data.cards.map(build));
  state.drawn = drawn;
  arrange(root, state);
  return gone;
}

function arrange(root, state) {
  const columns = columnsFor(root.clientWidth || 1000, state.data.cards.length, state.data.narrowest);
  root.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
}

function build({ name, text, color, diagram, note }) {
  const box = el("div", "ak-card");
  box.style.borderTopColor = color;
  const title = el("b", name.length > 18 ? "ak-long" : "", box);
  setTextForm(title, name);
  setTextForm(el("div", "ak-text", box), text);
  box.insertAdjacentHTML("beforeend", diagram);
  el("div", "ak-note", box, note);
  return box;
}
