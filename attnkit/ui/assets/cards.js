// One card per variant: what is tied.
// data: {cards: [{name, text, diagram, color, note}], narrowest}

import {
  columnsFor, once, onWidth, say, setTextForm, states, unpacked, whenGone,
} from "./panels.js";

export default function showCards({ data: packed, parentElement }) {
  const data = unpacked(packed);
  const root = once(parentElement, "div", "ak-cards");
  let state = states.get(root);
  if (!state) {
    state = {};
    states.set(root, state);
    state.endWidth = onWidth(root, () => arrange(root, state));
  }
  state.data = data;
  const drawn = JSON.stringify(data.cards.map(({ name, text, color, diagram }) => [name, text, color, diagram]));
  if (state.drawn !== drawn) {
    state.drawn = drawn;
    root.replaceChildren(...data.cards.map(build));
  }
  arrange(root, state);
  return whenGone(root, () => {
    state.endWidth();
    states.delete(root);
  });
}

function arrange(root, state) {
  const columns = columnsFor(root.clientWidth || 1000, state.data.cards.length, state.data.narrowest);
  root.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
}

function build(card) {
  const box = document.createElement("div");
  box.className = "ak-card";
  box.style.borderTopColor = card.color;
  box.innerHTML = `<b></b><div class="ak-text"></div>${card.diagram}<div class="ak-note"></div>`;
  const name = box.querySelector("b");
  setTextForm(name, card.name);
  name.classList.toggle("ak-long", card.name.length > 18);
  setTextForm(box.querySelector(".ak-text"), card.text);
  say(box.querySelector(".ak-note"), card.note);
  return box;
}
