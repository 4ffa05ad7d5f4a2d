// One example of the task: tokens in wrapping rows, below each the right answer, and an arc from
// the token that asks to the one that holds the answer. Pointing at a token shows its own arc, and
// so do the arrow keys, from one that is asked to the next.
// data: {cells: [{token, full, asked, answer, target, reverse}], n_source, note, message}

import { once, onWidth, states, unpacked, whenGone } from "./panels.js";

export default function showExample({ data: packed, parentElement }) {
  const data = unpacked(packed);
  const root = once(parentElement, "div", "ak-example");
  let state = states.get(root);
  if (!state) {
    state = {};
    states.set(root, state);
    state.endWidth = onWidth(root, () => drawArc(state));
  }
  const wanted = JSON.stringify(data);
  if (state.drawn !== wanted) {
    state.drawn = wanted;
    build(root, state, data);
  }
  return whenGone(root, () => {
    state.endWidth();
    states.delete(root);
  });
}

function build(root, state, data) {
  root.replaceChildren();
  const words = document.createElement("div");
  words.className = "ak-example-note";
  words.textContent = data.message || data.note;
  const scroll = document.createElement("div");
  scroll.className = "ak-example-scroll";
  scroll.tabIndex = data.cells.length ? 0 : -1;
  scroll.setAttribute("role", "group");
  const asked = data.cells.filter((cell) => cell.asked).length;
  scroll.setAttribute("aria-label", `An example of ${data.cells.length} tokens, ${asked} of them ` +
    "asked. Arrow keys left and right go from one that is asked to the next.");
  scroll.onkeydown = (event) => step(state, event);
  const strip = document.createElement("div");
  strip.className = "ak-example-strip";
  if (data.cells.length) strip.setAttribute("role", "list");
  scroll.append(strip);
  root.append(scroll, words);
  state.strip = strip;
  state.cells = data.cells.map((cell, i) => {
    if (data.n_source && (i === 0 || i === data.n_source)) {
      const side = document.createElement("div");
      side.className = "ak-side";
      side.textContent = i ? "decoder" : "encoder";
      strip.append(side);
    }
    const box = document.createElement("div");
    box.className = "ak-token-box" + (cell.asked ? " ak-asked" : "");
    box.setAttribute("role", "listitem");
    let said = `position ${i}: ${cell.full}`;
    if (cell.asked) said += `; asked, right answer ${cell.answer}`;
    if (cell.target >= 0) said += `, at position ${cell.target}`;
    box.setAttribute("aria-label", said);
    box.title = said;
    for (const [part, text] of [["place", i], ["said", cell.token], ["right", cell.answer]]) {
      const line = document.createElement("span");
      line.className = `ak-${part}`;
      line.textContent = text;
      box.append(line);
    }
    if (cell.asked) box.onmouseenter = () => choose(state, i);
    strip.append(box);
    return box;
  });
  state.data = data;
  state.arc = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  state.arc.classList.add("ak-example-arc");
  state.arc.setAttribute("aria-hidden", "true");
  state.arc.innerHTML = '<path class="ak-arc"/><path class="ak-arc"/>';
  strip.append(state.arc);
  strip.onmouseleave = () => choose(state, state.first);
  const apart = data.cells.findIndex((cell, i) => cell.target >= 0 && cell.target !== i);
  state.first = apart >= 0 ? apart : data.cells.findIndex((cell) => cell.asked);
  choose(state, state.first);
  document.fonts?.ready.then(() => drawArc(state));
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
  state.arc.style.display = from && to ? "" : "none";
  if (!from || !to) return;
  const x0 = from.offsetLeft + from.offsetWidth / 2, y0 = from.offsetTop + 14;
  let x1 = to.offsetLeft + to.offsetWidth / 2;
  const y1 = to.offsetTop + 14;
  if (from === to) x1 += 10;
  const top = Math.max(1, Math.min(y0, y1) - 9 - Math.min(12, Math.abs(x1 - x0) / 20));
  paths[0].setAttribute("d", `M${from === to ? x0 - 10 : x0} ${y0} C${x0} ${top} ${x1} ${top} ${x1} ${y1}`);
  paths[1].setAttribute("d", `M${x1 - 4} ${y1 - 6} L${x1} ${y1} L${x1 + 4} ${y1 - 6}`);
}
