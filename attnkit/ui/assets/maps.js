// Attention maps, one per panel: SVG cells that are made once and only change colour.
// data: {panels: [{name, text, color, cells, answers, right, summary, lacking}], rows, columns, column_titles,
//        target, reverse, answer_letters, alt, narrowest}; a target of -1 is none

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779",
  "#6ece58", "#b5de2b", "#fde725"].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
const RAMP = Array.from({ length: 256 }, (_, level) => {
  const place = (level / 255) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = VIRIDIS[low].map((c, i) => Math.round(c + (VIRIDIS[low + 1][i] - c) * (place - low)));
  return `rgb(${mix})`;
});
const TOP = 40, MARK = 26, LETTER = 6.1, GAP = 16, SMALLEST = 9;

export default function ({ data: packed, parentElement }) {
  const data = unpacked(packed);
  const root = once(parentElement, "div", "ak-maps");
  let state = states.get(root);
  if (!state) {
    state = { draws: 0 };
    states.set(root, state);
    state.tip = once(root, "div", "ak-tip");
    state.grid = once(root, "div", "ak-grid");
    state.endWidth = onWidth(root, () => arrange(root, state));
  }
  state.data = data;
  root.classList.toggle("ak-faded", Boolean(data.faded));
  arrange(root, state);
  data.panels.forEach((panel, i) => fill(state.panels[i], panel));
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", data.alt);
  state.draws += 1;
  root.dataset.draws = state.draws;
  return whenGone(root, () => {
    state.endWidth();
    states.delete(root);
  });
}

/** Place the panels; build their nodes anew only if labels or sizes differ from what stands. */
function arrange(root, state) {
  const { panels, rows, columns, target, reverse, narrowest } = state.data;
  const width = root.clientWidth || 1000;
  const left = 8 + LETTER * Math.max(...rows.map((text) => text.length));
  const answer = MARK + LETTER * state.data.answer_letters;
  const least = left + columns.length * SMALLEST + answer + GAP;
  const inRow = columnsFor(width, panels.length, Math.max(narrowest, least));
  state.grid.style.gridTemplateColumns = `repeat(${inRow}, minmax(0, 1fr))`;
  const free = (width - GAP * (inRow - 1)) / inRow - left - answer;
  const cellWidth = Math.max(4, Math.min(28, Math.floor((free / columns.length) * 2) / 2));
  const top = Math.max(TOP, 10 + LETTER * Math.max(...columns.map((text) => text.length)));
  const cellHeight = Math.max(17, Math.min(24, cellWidth));
  const shape = JSON.stringify([rows, columns, panels.map(({ name, color, lacking }) => [name, color, lacking]), target, reverse, cellWidth]);
  if (state.shape === shape) return;
  Object.assign(state, { shape, left, top, answer, cellWidth, cellHeight });
  state.grid.replaceChildren();
  state.panels = panels.map((panel) => buildPanel(state, panel));
  panels.forEach((panel, i) => fill(state.panels[i], panel));
}

function svg(tag, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  parent?.appendChild(element);
  return element;
}

function buildPanel(state, panel) {
  const { rows, columns, target, reverse } = state.data, { left, top, answer, cellWidth, cellHeight } = state;
  const right = left + columns.length * cellWidth;
  const box = document.createElement("div");
  box.className = "ak-map";
  state.grid.appendChild(box);
  const title = document.createElement("div");
  title.className = "ak-map-title";
  title.innerHTML = "<i>■</i> <b></b> <span></span>";
  title.querySelector("i").style.color = panel.color;
  setTextForm(title.querySelector("b"), panel.name);
  title.title = panel.text;
  box.appendChild(title);
  if (panel.lacking) {
    const note = document.createElement("div");
    note.className = "ak-map-lacking";
    note.textContent = panel.lacking;
    box.appendChild(note);
    return { cells: [], answers: [], levels: [], summary: title.querySelector("span") };
  }
  const size = { width: right + answer, height: top + rows.length * cellHeight + 2 };
  const picture = svg("svg", size, box);
  columns.forEach((text, j) => {
    const x = left + (j + 0.5) * cellWidth + 4, y = top - 5;
    svg("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, picture).textContent = text;
  });
  const cells = [], answers = [];
  rows.forEach((text, i) => {
    const y = top + i * cellHeight, baseline = y + cellHeight / 2 + 4;
    svg("text", { x: left - 6, y: baseline, "text-anchor": "end" }, picture).textContent = text;
    columns.forEach((_, j) => {
      const place = { x: left + j * cellWidth, y, width: cellWidth - 1, height: cellHeight - 1 };
      const cell = svg("rect", place, picture);
      cell.onmouseenter = () => showTip(state, cell, panel.name, i, j);
      cell.onmouseleave = () => (state.tip.style.display = "none");
      cells.push(cell);
    });
    answers.push(svg("text", { x: right + 6, y: baseline }, picture));
    const x = left + target[i] * cellWidth, w = Math.max(2, cellWidth - 2.5), h = cellHeight - 2.5;
    for (const name of target[i] < 0 ? [] : ["ak-halo", "ak-target"]) {
      svg("rect", { x: x + 0.75, y: y + 0.75, width: w, height: h, class: name }, picture);
    }
    if (reverse[i] < 0) return;
    const cx = left + (reverse[i] + 0.5) * cellWidth - 0.5, cy = y + cellHeight / 2 - 0.5;
    for (const name of ["ak-halo", "ak-reverse"]) {
      svg("circle", { cx, cy, r: Math.max(1, Math.min(w / 2 - 1, 4)), class: name }, picture);
    }
  });
  return { cells, answers, levels: [], summary: title.querySelector("span") };
}

function fill(drawn, panel) {
  setText(drawn.summary, panel.summary);
  if (panel.lacking) return;
  const levels = Uint8Array.from(atob(panel.cells), (c) => c.charCodeAt(0));
  levels.forEach((level, k) => {
    if (drawn.levels[k] !== level) drawn.cells[k].setAttribute("fill", RAMP[level]);
  });
  drawn.levels = levels;
  panel.answers.forEach((text, i) => {
    if (panel.right[i] === null) return;
    setText(drawn.answers[i], `${text} ${panel.right[i] ? "✓" : "✗"}`);
    drawn.answers[i].setAttribute("class", panel.right[i] ? "ak-right" : "ak-wrong");
  });
}

function showTip(state, cell, name, i, j) {
  const { rows, column_titles, panels } = state.data;
  const k = panels.findIndex((panel) => panel.name === name);
  const level = state.panels[k].levels[i * column_titles.length + j] / 255;
  const box = cell.getBoundingClientRect(), around = state.tip.parentElement.getBoundingClientRect();
  state.tip.textContent = `${rows[i]} looks at ${column_titles[j]}: ${level.toFixed(2)}`;
  state.tip.style.display = "block";
  const left = box.left - around.left + 14;
  state.tip.style.left = `${Math.max(0, Math.min(left, around.width - state.tip.offsetWidth))}px`;
  state.tip.style.top = `${box.top - around.top - 30}px`;
}
