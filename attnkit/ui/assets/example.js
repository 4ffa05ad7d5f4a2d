// One example of the task: tokens in wrapping rows, below each the right answer, and an arc from
// the token that asks to the one that holds the answer. Pointing at a token, or tapping it, shows its
// own arc, and so do the arrow keys, which go from one question to the next.
// data: {cells: [{token, full, asked, answer, target, reverse}], n_source, note, message}

import { mounted, onWidth, unpacked } from "./panels.js";
import { el, show, svg } from "./ink.js";
import { tr } from "./language.js";

export default function showExample({ data: packed, parentElement }) {
  const data = unpacked(packed), { root, state, gone } = mounted(parentElement, "ak-example", (root) => {
    const made = { ends: [onWidth(root, () => drawArc(made))] };
    return made;
  });
  const wanted = JSON.stringify(data);
  if (state.drawn !== wanted) build(root, state, data);
  state.drawn = wanted;
  return gone;
}

function build(root, state, data) {
  root.replaceChildren();
  const scroll = el("div", "ak-example-scroll", root), strip = el("div", "ak-example-strip", scroll);
  el("div", "ak-example-note", root, data.message || data.note);
  scroll.tabIndex = data.cells.length ? 0 : -1;
  scroll.setAttribute("role", "group");
  const n = data.cells.length, n_asked = data.cells.filter(({ asked }) => asked).length;
  scroll.setAttribute("aria-label", tr("An example of {n} tokens, {n_asked} of them asked. The left and right arrow keys go to the question before and the next one.", { n, n_asked }));
  scroll.onkeydown = (event) => step(state, event);
  if (data.cells.length) strip.setAttribute("role", "list");
  state.cells = data.cells.map((cell, i) => {
    const { token, asked, answer } = cell;
    if (data.n_source && (i === 0 || i === data.n_source)) el("div", "ak-side", strip, i ? tr("decoder") : tr("encoder"));
    const box = el("div", `ak-token-box${asked ? " ak-asked" : ""}`, strip);
    const description = described(cell, i);
    box.setAttribute("role", "listitem");
    box.setAttribute("aria-label", description);
    box.title = description;
    for (const [part, text] of [["place", i], ["said", token], ["right", answer]]) el("span", `ak-${part}`, box, String(text));
    if (asked) box.onpointerenter = box.onclick = () => choose(state, i);
    return box;
  });
  state.data = data;
  state.arc = svg("svg", { class: "ak-example-arc", "aria-hidden": "true" }, strip);
  for (let k = 0; k < 2; k++) svg("path", { class: "ak-arc" }, state.arc);
  strip.onpointerleave = ({ pointerType }) => pointerType === "mouse" && choose(state, first); // a finger leaves when it is lifted
  const apart = data.cells.findIndex(({ target }, i) => target >= 0 && target !== i);
  const first = apart >= 0 ? apart : data.cells.findIndex(({ asked }) => asked);
  choose(state, first);
  document.fonts?.ready.then(() => drawArc(state));
}

/** A token in words: only one that is asked has an answer and a place where that stands. */
function described({ full: token, asked, answer, target }, i) {
  if (!asked) return tr("position {i}: {token}", { i, token });
  if (target < 0) return tr("position {i}: {token}; asked, right answer {answer}", { i, token, answer });
  return tr("position {i}: {token}; asked, right answer {answer}, at position {target}", { i, token, answer, target });
}

function choose(state, i) {
  state.chosen = i;
  const cell = state.data.cells[i];
  state.cells.forEach((box, j) => {
    box.classList.toggle("ak-chosen", j === i);
    box.classList.toggle("ak-holds", Boolean(cell) && j === cell.target);
    box.classList.toggle("ak-reversed", Boolean(cell) && j === cell.reverse);
  });
  drawArc(state);
}

/** The next token that is asked, or the one before. */
function step(state, event) {
  const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const asked = state.cells.map((_, i) => i).filter((i) => state.data.cells[i].asked);
  if (!way || !asked.length) return;
  event.preventDefault();
  choose(state, asked.at((asked.indexOf(state.chosen) + way) % asked.length));
  state.cells[state.chosen].scrollIntoView({ block: "nearest" });
}

/** From the upper edge of the query to that of its target; across rows a longer way. */
function drawArc(state) {
  const cell = state.data?.cells[state.chosen], paths = state.arc?.children;
  if (!paths) return;
  const from = state.cells[state.chosen], to = cell && state.cells[cell.target];
  show(state.arc, Boolean(from && to));
  if (!from || !to) return;
  const x0 = from.offsetLeft + from.offsetWidth / 2, y0 = from.offsetTop + 14;
  let x1 = to.offsetLeft + to.offsetWidth / 2;
  const y1 = to.offsetTop + 14;
  if (from === to) x1 += 10;
  const top = Math.max(1, Math.min(y0, y1) - 9 - Math.min(12, Math.abs(x1 - x0) / 20));
  paths[0].setAttribute("d", `M${from === to ? x0 - 10 : x0} ${y0} C${x0} ${top} ${x1} ${top} ${x1} ${y1}`);
  paths[1].setAttribute("d", `M${x1 - 4} ${y1 - 6} L${x1} ${y1} L${x1 + 4} ${y1 - 6}`);
}
