// Grids of heads: a panel per model and kind, rows layers, columns heads, a colour per number.
// A grid is one stop of the Tab key; arrow keys go from cell to cell, Enter chooses.
// data: {panels: [{model, kind, note, alt, layers, heads, values, below}], measure, low, high,
//        beyond, signed, alt, chosen: [model, kind, layer, head] | null}

import { mounted, onWidth, say, unpacked } from "./panels.js";
import { clamp, diverging, el, number, scaleLegend, sequential, set, show } from "./ink.js";
import { tipIn } from "./maps.js";
import { saveMenu } from "./save.js";

const CELL = 20, CELL_LEAST = 6, CELL_MOST = 48, TALLEST = 480, GAP = 28, PANEL_LEAST = 150;
const INKS = ["#000000", "#ffffff"];

export default function showAtlas({ data: packed, parentElement, setTriggerValue }) {
  const { root, state, gone } = mounted(parentElement, "ak-atlas", mount);
  state.data = unpacked(packed);
  state.choose = (panel, i, j) =>
    setTriggerValue("chosen", [panel.model, panel.kind, panel.layers[i], panel.heads[j]]);
  draw(root, state);
  return gone;
}

function mount(root) {
  const state = { grids: [] };
  state.top = el("div", "ak-atlas-top", root);
  state.scale = scaleLegend(state.top);
  state.below = el("span", "", state.scale.node, "− below chance");
  state.named = saveMenu(state.top, () => ({
    body: state.body,
    heading: state.data.measure,
    legend: state.scale.node,
    name: "attnkit-atlas-heads",
    table: () => tableOf(state.data),
  }));
  state.body = el("div", "ak-atlas-panels", root);
  state.body.setAttribute("role", "group");
  state.tip = tipIn(root);
  state.ends = [onWidth(root, () => draw(root, state))];
  return state;
}

function draw(root, state) {
  const { data } = state;
  const scale = data.signed ? diverging(data.high) : sequential(data.high);
  const [least, most] = [scale.low, scale.high].map((end) => number(end));
  state.scale.update(scale, data.measure, data.beyond ? [data.signed ? `≤ ${least}` : least, `≥ ${most}`] : [least, most]);
  show(state.below, data.signed && data.panels.some(({ below }) => below.flat().some(Boolean)));
  state.named(data.measure);
  state.body.setAttribute("aria-label", data.alt);
  const width = root.clientWidth || 1000;
  const shape = JSON.stringify([width, data.panels.map(({ model, kind, layers, heads }) => [model, kind, layers, heads])]);
  if (state.shape !== shape) {
    state.shape = shape;
    state.tip.hide();
    state.grids = data.panels.map((panel, place) => buildGrid(state, panel, place, width));
    arrange(state, width);
  }
  data.panels.forEach((panel, place) => fill(state, state.grids[place], panel, scale));
}

/** Panels of a model stand together; the tallest model beside all others, if there is room. */
function arrange(state, width) {
  const models = new Map();
  state.data.panels.forEach(({ model }, place) => {
    models.set(model, [...(models.get(model) ?? []), state.grids[place]]);
  });
  const across = (grids) => grids.reduce((sum, grid) => sum + Math.max(grid.width, PANEL_LEAST) + GAP, 0);
  const height = (grids) => Math.max(0, ...grids.map((grid) => grid.height));
  const all = [...models.values()];
  const tallest = all.reduce((best, grids) => (height(grids) > height(best) ? grids : best), []);
  const others = all.filter((grids) => grids !== tallest);
  const fits = others.length && width - across(tallest) >= Math.max(...others.flat().map((grid) => grid.width));
  const columns = (fits ? [others, [tallest]] : [all]).map((some) => {
    const column = el("div", "ak-atlas-column");
    for (const grids of some) el("div", "ak-atlas-model", column).append(...grids.map((grid) => grid.box));
    return column;
  });
  state.body.replaceChildren(...columns);
  if (fits) enlarge(others.flat(), ...columns);
}

/** Enlarge the cells of some grids as far as their column gets neither higher than the one beside it nor too wide. */
function enlarge(grids, column, beside) {
  const kept = grids.map(({ table }) => table.style.cssText);
  for (let cell = CELL_MOST; cell > CELL; cell -= 2) {
    for (const { table } of grids) for (const side of ["--across", "--down"]) table.style.setProperty(side, `${cell}px`);
    if (column.offsetHeight <= beside.offsetHeight && grids.every(({ box }) => box.scrollWidth <= box.clientWidth)) return;
  }
  grids.forEach(({ table }, place) => (table.style.cssText = kept[place]));
}

function buildGrid(state, first, place, width) {
  const { layers, heads } = first;
  const label = 10 + 7 * String(layers.at(-1)).length;
  const across = clamp(Math.floor((width - label - 4) / heads.length), CELL_LEAST, CELL);
  const down = clamp(Math.floor(TALLEST / layers.length), CELL_LEAST, CELL);
  const box = el("div", "ak-atlas-panel");
  const title = el("div", "ak-atlas-title", box);
  const grid = {
    box,
    width: label + heads.length * across + 6,
    height: layers.length * down,
    model: el("b", "", title, ""),
    kind: el("span", "", title, ""),
    note: el("span", "ak-atlas-note", title, ""),
    at: [0, 0],
  };
  const table = (grid.table = el("div", "ak-atlas-grid", box));
  table.setAttribute("role", "grid");
  table.tabIndex = 0;
  table.style.cssText = `--across: ${across}px; --down: ${down}px; --label: ${label}px`;
  const id = (i, j) => `ak-atlas-${place}-${i}-${j}`;
  const row = (index) => {
    const node = el("div", "ak-atlas-row", table);
    node.setAttribute("role", "row");
    node.setAttribute("aria-rowindex", index + 1);
    return node;
  };
  const header = (parent, role, text, shown) => {
    const node = el("span", "ak-atlas-header", parent, shown ? text : "");
    node.setAttribute("role", role);
    if (!shown) node.setAttribute("aria-label", text);
    return node;
  };
  const top = row(0);
  header(top, "columnheader", "layer", false);
  const every = Math.ceil(16 / across);
  heads.forEach((head, j) => header(top, "columnheader", String(head), j % every === 0));
  const skipped = Math.ceil(12 / down);
  grid.cells = layers.map((layer, i) => {
    const line = row(i + 1);
    header(line, "rowheader", String(layer), i % skipped === 0);
    return heads.map((_, j) => {
      const cell = el("div", "ak-atlas-cell", line);
      cell.setAttribute("role", "gridcell");
      cell.id = id(i, j);
      cell.dataset.at = `${i} ${j}`;
      show(el("i", "ak-atlas-below", cell), false);
      return cell;
    });
  });
  const point = (i, j) => {
    const [a, b] = grid.at;
    grid.cells[a][b].classList.remove("ak-pointed");
    grid.at = [i, j];
    grid.cells[i][j].classList.add("ak-pointed");
    table.setAttribute("aria-activedescendant", id(i, j));
    tell(state, grid, i, j);
  };
  const hide = () => {
    grid.cells[grid.at[0]][grid.at[1]].classList.remove("ak-pointed");
    state.tip.hide();
  };
  const of = (event) => event.target.closest?.(".ak-atlas-cell")?.dataset.at.split(" ").map(Number);
  table.onpointermove = (event) => {
    const at = of(event);
    if (at) point(...at);
  };
  table.onpointerleave = hide;
  table.onclick = (event) => {
    const at = of(event);
    if (!at) return;
    point(...at);
    state.choose(grid.panel, ...at);
  };
  table.onfocus = () => {
    if (table.matches(":focus-visible")) point(...grid.at);
  };
  table.onblur = hide;
  table.onkeydown = (event) => {
    const [i, j] = grid.at, last = heads.length - 1;
    const next = {
      ArrowUp: [i - 1, j],
      ArrowDown: [i + 1, j],
      ArrowLeft: [i, j - 1],
      ArrowRight: [i, j + 1],
      Home: [event.ctrlKey ? 0 : i, 0],
      End: [event.ctrlKey ? layers.length - 1 : i, last],
    }[event.key];
    if (next) point(clamp(next[0], 0, layers.length - 1), clamp(next[1], 0, last));
    else if (event.key === "Enter" || event.key === " ") state.choose(grid.panel, i, j);
    else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
  };
  return grid;
}

const valueText = (value) => (value === null ? "none" : number(value, Math.abs(value) < 0.1 ? 3 : 2));

const placeOf = (panel, i, j) => `layer ${panel.layers[i]}, head ${panel.heads[j]}`;

function fill(state, grid, panel, scale) {
  const [model, kind, layer, head] = state.data.chosen ?? [];
  const own = panel.model === model && panel.kind === kind;
  grid.panel = panel;
  say(grid.model, panel.model);
  say(grid.kind, panel.kind);
  say(grid.note, panel.note);
  set(grid.table, "aria-label", panel.alt);
  grid.cells.forEach((line, i) => {
    line.forEach((cell, j) => {
      const value = panel.values[i][j];
      const chosen = own && panel.layers[i] === layer && panel.heads[j] === head;
      set(cell, "style", `background: ${scale.css(value ?? NaN)}`);
      set(cell, "aria-label", `${placeOf(panel, i, j)}: ${valueText(value)}`);
      set(cell, "aria-selected", chosen);
      if (chosen && !grid.chosen) grid.at = [i, j]; // where the keys begin
      cell.classList.toggle("ak-chosen-cell", chosen);
      const below = state.data.signed && Boolean(panel.below[i][j]);
      show(cell.firstChild, below);
      if (below) cell.firstChild.style.background = inkOn(scale.rgb(value));
    });
  });
  grid.chosen = own;
}

/** Tell the number of a cell, beside it. */
function tell({ tip }, { panel, cells }, i, j) {
  const { left, right, top } = cells[i][j].getBoundingClientRect();
  tip.show(`${panel.model}, ${panel.kind}\n${placeOf(panel, i, j)}: ${valueText(panel.values[i][j])}`, { clientX: (left + right) / 2, clientY: top });
}

/** Black or white, whichever stands out more. */
function inkOn(rgb) {
  const [r, g, b] = rgb.map((byte) => (byte / 255) ** 2.2);
  return INKS[Number(0.2126 * r + 0.7152 * g + 0.0722 * b < 0.18)];
}

function tableOf({ panels, measure }) {
  const rows = panels.flatMap(({ model, kind, layers, heads, values }) =>
    layers.flatMap((layer, i) => heads.map((head, j) => [model, kind, layer, head, values[i][j]])));
  return { columns: ["model", "kind", "layer", "head", measure], rows };
}
