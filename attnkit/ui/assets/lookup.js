// The Attention page: the stages of one lookup, with real numbers, side by side between variants.

import {
  bars, clamp, diverging, el, limitOf, number, ordinal, paint, panelGrid, panelTitle, percent, placeIn,
  set, svg, textWidth,
} from "./ink.js";
import { strip } from "./maps.js";
import { columnsOf, followed, isLate, mostHeads, placeText, short, lookupFinding } from "./followed.js";
import { say } from "./panels.js";

const LONGEST_NAME = 14; // letters of an entry in the table; of longer ones only its name
const STAGE_ROW = 18, NUMBER = 50, BAR = 24, WEIGHT = 36, CELLS = 30; // pixels of the table's parts, at least
const isMasked = (value) => value === -Infinity || value < -9e4;

/** The entry whose k and v are shown: the one pointed at, the right one, or the most looked at. */
function entryOf(film, p) {
  const { header } = film, layer = header.layers[header.layer];
  const pointed = layer.column_positions.indexOf(film.own.pointed);
  if (pointed >= 0) return pointed;
  if (header.target >= 0) return header.target;
  const weights = film.get(`${p}.weights`).subarray(0, layer.column_positions.length);
  return weights.reduce((best, weight, j) => (weight > weights[best] ? j : best), 0);
}

/** The largest size of an array's numbers over the film so far, so that colours keep their meaning. */
function limitOver(film, ...names) {
  const cache = (film.own.limits ??= {}), key = names.join();
  if (cache[key]?.version !== film.version || cache[key].key !== film.key) {
    const all = names.filter((name) => film.shape(name)).flatMap((name) => film.steps.map((_, k) => film.get(name, k)));
    cache[key] = { version: film.version, key: film.key, limit: limitOf(...all) };
  }
  return cache[key].limit;
}

/** The matrix that makes a role, named after all roles that it makes: W_QK. */
const matrixOf = (variant, role) => `W_${variant.classes.find((members) => members.includes(role)) ?? role}`;

/** Whether two vectors of the followed token are one and the same at every moment. */
function alwaysEqual(film, one, other) {
  return film.steps.every((_, k) => {
    const a = one(k), b = other(k);
    return a.length === b.length && a.every((value, i) => Math.abs(value - b[i]) <= 1e-6 * Math.max(1, Math.abs(value)));
  });
}

/** Strips of the followed token and of the entry: [{label, matrix, values(), limit(), n}]. */
function vectorsOf(film, p) {
  const { header } = film, variant = film.variants[p], layer = header.layers[header.layer];
  const place = layer.row_positions[header.row], self = layer.column_positions.indexOf(place);
  const n = film.shape(`${p}.token`)[0];
  const roles = {
    q: (k) => film.part(`${p}.q`, [0], k),
    k: (k) => film.part(`${p}.k`, [0, self], k),
    v: (k) => film.part(`${p}.v`, [self], k),
  };
  const known = self >= 0 && variant.d_k === variant.d_v ? ["q", "k", "v"] : self >= 0 ? ["q", "k"] : ["q"];
  const joined = [];
  for (const role of known) {
    const same = joined.find((group) => alwaysEqual(film, roles[group[0]], roles[role]));
    if (same) same.push(role);
    else joined.push([role]);
  }
  if (self >= 0 && variant.d_k !== variant.d_v) joined.push(["v"]);
  const limit = () => limitOver(film, `${p}.q`, `${p}.k`, `${p}.v`);
  const strips = [{ label: "token", matrix: "", values: () => film.get(`${p}.normed`), limit: () => limitOver(film, `${p}.normed`), n }];
  for (const group of joined) {
    strips.push({ label: group.join(" = "), matrix: [...new Set(group.map((role) => matrixOf(variant, role.toUpperCase())))].join(", "),
      values: () => roles[group[0]](), limit, n: group[0] === "v" ? variant.d_v : variant.d_k });
  }
  const entry = {
    k: (k) => film.part(`${p}.k`, [0, entryOf(film, p)], k),
    v: (k) => film.part(`${p}.v`, [entryOf(film, p)], k),
  };
  const all = (name) => (k) => film.part(`${p}.${name}`, name === "k" ? [0] : [], k);
  const groups = variant.d_k === variant.d_v && alwaysEqual(film, all("k"), all("v")) ? [["k", "v"]] : [["k"], ["v"]];
  const entries = groups.map((group) => ({ label: group.join(" = "), matrix: matrixOf(variant, group[0].toUpperCase()),
    values: () => entry[group[0]](), limit, n: group[0] === "v" ? variant.d_v : variant.d_k }));
  return { strips, entries, self };
}

function stripRows(film, parent, rows, width) {
  const left = 62;
  return rows.map((row) => {
    const line = el("div", "ak-strip-row", parent);
    el("span", "ak-strip-label", line, row.label);
    const side = el("div", "", line);
    const drawn = strip(film, side, { n: row.n, width: width - left - 60, tell: (k, value) => `${row.label}, number ${k + 1} of ${row.n}: ${number(value, 4)}` });
    el("span", "ak-strip-matrix", line, row.matrix);
    return () => drawn.update(row.values(), diverging(row.limit()));
  });
}

/** What is done to the products on their way to the scores, besides scaling: adding maps, a bias. */
function addedOn(film, p) {
  const { n_maps, n_score_maps, scale } = film.variants[p], joined = n_maps > n_score_maps;
  const biased = film.steps.some((_, k) => {
    const products = film.get(`${p}.products`, k), n = products.length / n_maps;
    return film.get(`${p}.masked`, k).some((score, c) => {
      const own = joined ? products.filter((_, at) => at % n === c) : [products[c]];
      const scaled = scale * own.reduce((a, b) => a + b, 0);
      return !isMasked(score) && Math.abs(score - scaled) > 1e-4 * Math.max(1, Math.abs(score));
    });
  });
  return [joined && "sum", biased && "bias"].filter(Boolean);
}

/** The box of a stage, and its title. */
function stageBox(parent, place, text) {
  const box = el("div", "", parent), line = el("div", "ak-stage", box);
  el("b", "", line, place);
  return [box, el("span", "", line, text)];
}

/** Names of the entries in the table, and the right edges of names, of q·k and of scores. */
function stageNames(film, p) {
  const layer = film.header.layers[film.header.layer];
  const names = layer.columns.map((name, j) => (layer.column_titles[j].length > LONGEST_NAME ? name : layer.column_titles[j]));
  const left = 18 + textWidth(names), step = NUMBER * (film.variants[p].n_maps > 1 ? 1.6 : 1);
  return { names, edges: [left, left + step, left + 2 * step] };
}

/** One row per entry: q·k, scaled and masked, weight, weighted value; `title` says what is done. */
function stageTable(film, parent, title, p, width) {
  const { header } = film, layer = header.layers[header.layer], variant = film.variants[p];
  const { names, edges: [left, ...at] } = stageNames(film, p), tokens = columnsOf(layer);
  const room = width - at[1] - WEIGHT, long = room < 18 + BAR + CELLS ? 0 : Math.max(BAR, (room + WEIGHT) * 0.42 - 40);
  const bar = at[1] + 8, value = bar + long + WEIGHT - (long ? 0 : 8), spare = width - value - 10, cells = spare < 18 ? 0 : spare;
  const top = 20, height = top + names.length * STAGE_ROW, total = value + (cells && 10 + cells);
  const node = el("div", "ak-heat", el("div", "ak-scroll", parent));
  Object.assign(node.style, { width: `${total}px`, height: `${height}px` });
  const canvas = el("canvas", "", node);
  Object.assign(canvas, { width: variant.d_v, height: layer.column_positions.length });
  canvas.style.cssText = `left:${value + 10}px;top:${top}px;width:${cells}px;height:${layer.column_positions.length * STAGE_ROW}px`;
  const over = svg("svg", { width: total, height, "aria-hidden": "true" }, node);
  const head = (x, text) => {
    const node = svg("text", { x, y: 13, "text-anchor": "end", class: "ak-quiet" }, over);
    node.textContent = text;
    return node;
  };
  head(at[0], "q·k");
  const scored = head(at[1], ""), known = {};
  head(value, "weight");
  if (cells) head(total, cells < 66 ? "× v" : "weight × v");
  const rows = names.map((name, j) => {
    const y = top + j * STAGE_ROW, base = y + STAGE_ROW / 2 + 4;
    const group = svg("g", { class: `ak-bar-row${j === header.target ? " ak-bar-target" : ""}` }, over);
    svg("rect", { x: 0, y, width: value + 8, height: STAGE_ROW, class: "ak-bar-behind" }, group);
    const text = (x) => svg("text", { x, y: base, "text-anchor": "end" }, group);
    text(left - 6).textContent = name;
    if (j === header.reverse) svg("circle", { cx: 4, cy: base - 4, r: 3, class: "ak-reversed-mark" }, group);
    const ink = svg("rect", { x: bar, y: y + 4, height: STAGE_ROW - 8, class: "ak-bar-ink" }, group);
    ink.style.fill = variant.color;
    return { group, product: text(at[0]), score: text(at[1]), ink, weight: text(value) };
  });
  node.onpointermove = (event) => {
    const { x, y } = placeIn(node, event), j = Math.floor((y - top) / STAGE_ROW);
    if (j < 0 || j >= names.length) return film.link.point();
    film.link.point(tokens[j]);
    const k = Math.floor(((x - value - 10) / cells) * variant.d_v);
    const title = layer.column_titles[j];
    if (cells && k >= 0 && j < layer.column_positions.length) film.tip.show(`${title}\nweight × v, number ${k + 1} of ${variant.d_v}: ${number(weighted[j * variant.d_v + k], 4)}`, event);
    else film.tip.show(title, event);
  };
  node.onpointerleave = () => {
    film.link.point();
    film.tip.hide();
  };
  film.link.on(node, (token) => {
    rows.forEach(({ group }, j) => group.classList.toggle("ak-linked-row", token !== undefined && tokens[j] === token));
  });
  const n = layer.column_positions.length, weighted = new Float32Array(n * variant.d_v);
  const textsOfMaps = (name, count, j, textOf) => Array.from({ length: count }, (_, map) => textOf(film.get(`${p}.${name}`)[map * n + j])).join(", ");
  return () => {
    const weights = film.get(`${p}.weights`), v = film.get(`${p}.v`);
    for (let j = 0; j < n; j++) for (let d = 0; d < variant.d_v; d++) weighted[j * variant.d_v + d] = weights[j] * v[j * variant.d_v + d];
    paint(canvas, weighted, diverging(limitOver(film, `${p}.v`)));
    if (known.version !== film.version) {
      const more = addedOn(film, p); // one name for the whole training
      known.version = film.version;
      say(scored, more.length ? "score" : `× ${number(variant.scale)}`);
      say(title, ["q·k, scale", ...more, "mask, softmax, × v"].join(", "));
    }
    const scoreText = (value) => (value === -Infinity ? "later" : isMasked(value) ? "itself" : number(value));
    rows.forEach((row, j) => {
      if (j < n) {
        say(row.product, textsOfMaps("products", variant.n_maps, j, number));
        say(row.score, textsOfMaps("masked", variant.n_score_maps, j, scoreText));
      }
      set(row.ink, "width", (clamp(weights[j], 0, 1) * long).toFixed(1));
      say(row.weight, percent(weights[j]));
    });
  };
}

const MOST_LOGITS = 5;

/** The highest logits in order; the right class is among them, at the end if it is not as high. */
function topLogits(film, p) {
  const { header } = film, logits = film.get(`${p}.logits`), total = film.get(`${p}.total`)[0];
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  const right = order.findIndex((c) => header.classes[c] === header.right);
  const shown = order.slice(0, MOST_LOGITS);
  if (right >= shown.length) shown[shown.length - 1] = order[right];
  return shown.map((c) => {
    const isRight = header.classes[c] === header.right, rank = order.indexOf(c) + 1;
    const text = header.texts[header.classes[c]] ?? String(header.classes[c]);
    const more = rank > MOST_LOGITS ? ` (${ordinal(rank)})` : "";
    return { text: `${short(text)}${more}${isRight ? " ✓" : ""}`, isRight, logit: logits[c], probability: Math.exp(logits[c] - total) };
  });
}

function logitRows(film, parent, p, width) {
  const n = Math.min(MOST_LOGITS, film.shape(`${p}.logits`)[0]);
  const left = textWidth(Object.values(film.header.texts).map((text) => `${short(text)} (99th) ✓`)) + 8;
  const drawn = bars(film, parent, { labels: Array(n).fill(""), left, room: 84, width: width - 8, color: film.variants[p].color });
  const groups = drawn.node.querySelectorAll(".ak-bar-row");
  return () => {
    const top = topLogits(film, p);
    drawn.update(top.map((row) => row.probability), {
      labels: top.map((row) => row.text),
      texts: top.map((row) => `${number(row.logit, 1)} → ${percent(row.probability)}`),
    });
    top.forEach((row, i) => groups[i].classList.toggle("ak-bar-target", row.isRight));
  };
}

const STAGES = 5;

/** All stages of one variant, from top to bottom; returns what shows the current frame. */
function buildStages(film, panel, p, width) {
  const { header } = film, variant = film.variants[p], layer = header.layers[header.layer];
  const { strips, entries, self } = vectorsOf(film, p);
  const [first] = stageBox(panel, "1", `${followed(film)} becomes ${self >= 0 ? "q, k and v" : "q"}`);
  const [second, whose] = stageBox(panel, "2", "");
  const [third, made] = stageBox(panel, "3", "");
  const [fourth] = stageBox(panel, "4", "Summed up: z; through W_O: added");
  const added = { limit: () => limitOver(film, `${p}.head_out`, `${p}.added`), n: film.shape(`${p}.added`)[0] };
  const leaves = [
    { label: "z", matrix: "", values: () => film.get(`${p}.z`), limit: () => limitOver(film, `${p}.z`), n: variant.d_v },
    { ...added, label: "added", matrix: variant.has_output ? "W_O" : "no W_O", values: () => film.get(`${p}.head_out`) },
  ];
  if (variant.n_heads > 1) leaves.push({ ...added, label: "all heads", matrix: "", values: () => film.get(`${p}.added`) });
  const updates = [
    ...stripRows(film, first, strips, width),
    () => say(whose, `k and v of ${layer.columns[entryOf(film, p)]}`),
    ...stripRows(film, second, entries, width),
    stageTable(film, third, made, p, width),
    ...stripRows(film, fourth, leaves, width),
  ];
  if (film.shape(`${p}.logits`)) {
    const [fifth] = stageBox(panel, "5", "Highest logits → probability");
    updates.push(logitRows(film, fifth, p, width));
  }
  return updates;
}

const VECTORS = ["token", "normed", "q", "k", "v", "products", "scores", "masked", "weights", "z", "head_out", "added", "logits"];

export const lookupFigure = {
  name: "lookup",
  title: (film) => `The lookup of ${followed(film)}, stage by stage`,
  hint: (film) => [
    mostHeads(film) * film.header.layers.length > 1 ? `${placeText(film, film.header)[0].toUpperCase()}${placeText(film, film.header).slice(1)}.` : "",
    "Coloured cells are numbers, blue below 0, red above: point at them. Strips joined by = are one and the same. W_QK makes q and k.",
    film.header.target >= 0 ? "Bold: the entry that holds the right answer." : "",
    film.header.reverse >= 0 ? "Circle: the entry that points back." : "",
  ].filter(Boolean).join(" "),
  height: 700,
  build(film, body) {
    const least = Math.max(...film.variants.map((_, p) => (film.shape(`${p}.weights`) ? stageNames(film, p).edges[2] + WEIGHT + 18 + BAR + CELLS : 0)));
    const grid = panelGrid(film, body, film.variants.length, least, 1 + STAGES);
    const parts = film.variants.map((variant, p) => {
      const box = grid.boxes[p];
      panelTitle(box, variant);
      if (film.shape(`${p}.weights`)) return buildStages(film, box, p, grid.inner);
      el("div", "ak-panel-note", box, variant.refusal || variant.lacking);
      return [];
    });
    const updates = parts.flat();
    film.link.on(body, (token) => {
      film.own.pointed = token;
      updates.forEach((update) => update());
    });
    return { updates, node: grid.node };
  },
  update(film, { updates, node }) {
    node.classList.toggle("ak-faded", isLate(film));
    updates.forEach((update) => update());
  },
  finding: lookupFinding,
  table(film) {
    const { header } = film, layer = header.layers[header.layer], rows = [];
    film.variants.forEach((variant, p) => {
      for (const name of VECTORS.filter((one) => film.shape(`${p}.${one}`))) {
        const shape = film.shape(`${p}.${name}`), values = film.get(`${p}.${name}`);
        const axis = { k: 1, v: 0, products: 1, scores: 1, masked: 1, weights: 0 }[name];
        values.forEach((value, c) => {
          const place = [];
          for (let rest = c, d = shape.length - 1; d >= 0; rest = Math.floor(rest / shape[d]), d--) place.unshift(rest % shape[d]);
          const entry = axis === undefined ? (name === "logits" ? header.texts[header.classes[c]] ?? header.classes[c] : "") : layer.column_titles[place[axis]];
          const others = place.filter((_, d) => d !== axis).map((i) => i + 1);
          rows.push([film.step, variant.name, name, entry, name === "logits" ? "" : others.join("."), value]);
        });
      }
    });
    return { columns: ["step", "variant", "what", "entry", "number", "value"], rows };
  },
};
