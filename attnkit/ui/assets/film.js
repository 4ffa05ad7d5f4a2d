// Films: training at up to 100 moments, shown by a page of figures under one player bar.
// A page's component (its file is joined after panels.js, ink.js, charts.js, trace.js, save.js and this one):
//
//   export default function showPage(component) {           // {data: bytes, parentElement, setTriggerValue}
//     return filmPage(component, { figures: [accuracy], more: [loss] });
//   }
//
// The conclusion, `film.sentencesOf("conclusion")`, stands above the player. If the training failed,
// `header.failure` stands there instead.
// The figures of `more` are folded away under "More figures" until the visitor opens them.
//
// A figure is a plain object; `film.at` is the place of the shown frame, `film.step` its step:
//   {
//     name: "accuracy",                             // of its files and of its box
//     title, hint,                                  // texts, or functions of the film
//     height: 200,                                  // room that is kept until it is drawn
//     shown(film),                                  // whether it is there at all; optional
//     shape(film),                                  // built anew when this differs; optional, besides
//                                                   //   the header and the width
//     build(film, body) → drawn,                    // makes all nodes, once
//     update(film, drawn),                          // shows `film.at`: attributes and texts only
//     finding(film) → text,                         // text alternative, at the shown step
//     table(film) → {columns: [text], rows: [[…]]}, // the numbers behind it, for CSV
//   }
// What a film knows (header and arrays are those of attnkit/analysis/inspection/result.py):
//   film.header, film.variants, film.steps, film.at, film.step, film.version (grows with frames)
//   film.get(name, k = film.at) → values of frame k, or of a constant array; film.shape(name)
//   film.part(name, [v, h, …], k) → the values below these leading indices, without copying
//   film.value(name, [v, …], k) → one number     film.line(name, [v, …]) → it, for every frame
//   film.sentencesOf(name, k) → the texts of frame k among the header's sentences, composed in Python
//   film.go(k), film.nearest(step), film.redraw()
//   film.picked, film.pick({layer, head, query_index, key_position})  what the visitor chose; sent to Python
//   film.own  what a page keeps in the browser only     film.served  whether Python answers; a file has none
//   film.link.point(token), film.link.on(node, seen)   a token pointed at, in all figures
//   film.tip.show(text, event), film.tip.hide()

import { isPrinting, mounted, onSight, onWidth, say } from "./panels.js";
import { clamp, el, number, percent, set, show, svg } from "./ink.js";
import { saveMenu } from "./save.js";
import { lineSample } from "./chart.js";
import { dashOf } from "./charts.js";
import { tipIn } from "./maps.js";

const PLAY_SECONDS = 10, REST = 250;
const DECODED = {
  F64: (b) => new Float64Array(b), F32: (b) => new Float32Array(b), F16: (b) => halves(new Uint16Array(b)),
  U8: (b) => new Uint8Array(b), I8: (b) => new Int8Array(b), I16: (b) => new Int16Array(b),
  I32: (b) => new Int32Array(b), I64: (b) => Float64Array.from(new BigInt64Array(b), Number),
  BOOL: (b) => new Uint8Array(b),
};
let halfTable;

/** Numbers of 16 bits as those of 32. */
function halves(bits) {
  halfTable ??= Float32Array.from({ length: 65536 }, (_, half) => {
    const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24);
  });
  const values = new Float32Array(bits.length);
  for (let k = 0; k < bits.length; k++) values[k] = halfTable[bits[k]];
  return values;
}

/** A safetensors blob: its header, and its arrays by name as {shape, data}. */
export function readTensors(given) {
  const bytes = given instanceof Uint8Array ? given : new Uint8Array(given.buffer ?? given, given.byteOffset ?? 0, given.byteLength);
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const { __metadata__: about = {}, ...entries } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(entries)) {
    const own = bytes.slice(8 + length + from, 8 + length + to); // a copy begins where its numbers may
    arrays[name] = { shape, data: DECODED[dtype](own.buffer) };
  }
  return { header: JSON.parse(about.inspected ?? "{}"), arrays };
}

export function newFilm() {
  const film = {
    key: "", header: { variants: [] }, steps: [], frames: new Map(), constants: {}, shapes: {},
    at: 0, version: 0, following: true, picked: {}, own: {},
    get variants() { return film.header.variants; },
    get step() { return film.steps[film.at]; },
    get moment() { return film.header.total_steps === undefined ? "" : `step ${film.step}`; }, // a trained model has none
    get(name, k = film.at) { return film.constants[name]?.data ?? film.frames.get(film.steps[k])?.[name]; },
    shape: (name) => film.constants[name]?.shape ?? film.shapes[name],
    part(name, indices, k) {
      const shape = film.shape(name), size = shape.slice(indices.length).reduce((a, b) => a * b, 1);
      const from = indices.reduce((sum, index, d) => sum * shape[d] + index, 0) * size;
      return film.get(name, k).subarray(from, from + size);
    },
    value: (name, indices, k) => film.part(name, indices, k)[0],
    line: (name, indices) => film.steps.map((_, k) => film.value(name, indices, k)),
    sentencesOf: (name, k = film.at) => film.frames.get(film.steps[k])?.sentences[name],
    nearest: (step) => film.steps.reduce((best, s, k) => (Math.abs(s - step) < Math.abs(film.steps[best] - step) ? k : best), 0),
  };
  return film;
}

/** Add a blob's frames to a film, or start over if it answers another question. */
export function takeBlob(film, blob) {
  const { header, arrays } = readTensors(blob);
  const framed = new Set(header.framed ?? []);
  const shapes = Object.fromEntries([...framed].map((name) => [name, arrays[name].shape.slice(1)]));
  const asked = header.request ?? {};
  const key = JSON.stringify([header.film, header.view, asked, shapes, header.classes]);
  const shown = film.step, was = film.header;
  if (key === film.key && was.texts) header.texts = { ...was.texts, ...header.texts };
  if (key !== film.key) Object.assign(film, { key, frames: new Map(), shapes });
  if (was.film !== header.film) film.following = true;
  const picked = {};
  for (const name of ["layer", "head", "query_index"]) picked[name] = header[name] ?? asked[name] ?? 0;
  picked.key_position = asked.key_position ?? undefined; // there may be none
  const told = JSON.stringify(picked); // as the answer says it, until the visitor picks another
  if (told !== film.told) Object.assign(film, { told, picked: { ...film.picked, ...picked } });
  const { sentences = {}, all_sentences: texts = [], ...about } = header; // each text stands once, under its number
  const read = (one) => (Array.isArray(one) ? one.map(read) : texts[one]);
  film.header = about;
  film.constants = Object.fromEntries(Object.entries(arrays).filter(([name]) => !framed.has(name)));
  header.steps.forEach((step, f) => {
    const frame = { sentences: Object.fromEntries(Object.entries(sentences).map(([name, all]) => [name, read(all[f])])) };
    for (const name of framed) {
      const size = shapes[name].reduce((a, b) => a * b, 1);
      frame[name] = arrays[name].data.subarray(f * size, (f + 1) * size);
    }
    film.frames.set(step, frame);
  });
  film.steps = [...film.frames.keys()].sort((a, b) => a - b);
  film.at = film.following || shown === undefined ? Math.max(0, film.steps.length - 1) : film.nearest(shown);
  film.version += 1;
}

/** What a component's default export calls: mounts once, and takes every blob that comes. */
export function filmPage({ data, parentElement, setTriggerValue }, view) {
  const { state, gone } = mounted(parentElement, "ak-film", (root) => mount(root, view));
  state.setTriggerValue = setTriggerValue;
  if (data?.byteLength) {
    takeBlob(state.film, data);
    arrangeFigures(state);
    schedule(state);
    const since = state.film.header.since ?? -1; // the last step of what was sent before
    if (since >= 0 && !state.film.frames.has(since)) setTriggerValue?.("resend", state.film.header.film);
  }
  return gone;
}

function mount(root, view) {
  const film = newFilm();
  const state = { root, view, film, figures: [], ends: [() => pause(state)], moves: 0 };
  Object.defineProperty(film, "served", { get: () => Boolean(state.setTriggerValue) });
  film.width = root.clientWidth || 1000;
  film.tip = tipIn(root);
  film.link = linking();
  film.go = (k) => {
    pause(state);
    moveTo(state, k);
  };
  film.redraw = () => {
    arrangeFigures(state);
    schedule(state);
  };
  film.pick = (change) => {
    Object.assign(film.picked, change);
    state.setTriggerValue?.("picked", JSON.parse(JSON.stringify(film.picked))); // told also if it was the last one, too
    film.redraw();
  };
  state.conclusion = el("p", "ak-conclusion", root, "");
  state.player = buildPlayer(state);
  view.mount?.(film, root);
  state.figures = view.figures.map((definition) => buildFrame(state, definition, root));
  if (view.more?.length) {
    state.more = el("details", "ak-more", root);
    el("summary", "", state.more, "More figures");
    state.figures.push(...view.more.map((definition) => buildFrame(state, definition, state.more)));
  }
  state.ends.push(onWidth(root, () => {
    film.width = root.clientWidth;
    film.redraw();
    if (isPrinting()) drawAll(state); // no picture of the screen comes before the paper
  }));
  return state;
}

function linking() {
  const seen = new Map(); // node → what is called with the token that is pointed at
  let current;
  return {
    on: (node, call) => seen.set(node, call),
    point(token) {
      if (token === current) return;
      current = token;
      for (const [node, call] of seen) {
        if (node.isConnected) call(token);
        else seen.delete(node);
      }
    },
  };
}

// The box of a figure: heading, hint, menu, body.

function buildFrame(state, definition, parent) {
  const section = el("section", "ak-film-figure", parent);
  section.dataset.figure = definition.name;
  const head = el("div", "ak-film-head", section);
  const title = el("h2", "", head, "");
  const hint = el("p", "ak-film-hint", section, "");
  const body = el("div", "ak-film-body", section);
  body.style.minHeight = `${definition.height ?? 120}px`;
  const figure = { definition, section, title, hint, body, shape: null, visible: false, stale: true };
  figure.named = saveMenu(head, () => {
    draw(state, figure);
    describe(state, figure);
    const { film } = state, { header } = film, where = film.moment && `step ${number(film.step, 0)} of ${number(header.total_steps, 0)}`;
    return {
      body,
      legend: body.querySelector(".ak-chart") && !body.querySelector(".ak-film-legend") ? state.player.legend : null,
      heading: [textOf(definition.title, film), header.title, where].filter(Boolean).join(" · "),
      name: ["attnkit", header.task, header.view, definition.name, film.moment && `step-${film.step}`].filter(Boolean).join("-"),
      table: () => definition.table(film),
    };
  });
  state.ends.push(onSight(section, (visible) => {
    figure.visible = visible;
    if (!visible || !figure.stale || !isThere(figure)) return; // on paper all is visible
    draw(state, figure);
    describe(state, figure);
  }));
  return figure;
}

const textOf = (words, film) => (typeof words === "function" ? words(film) : words ?? "");

const isThere = ({ section }) => section.style.display !== "none";

/** After news: which figures are there, and which must be built anew. */
function arrangeFigures(state) {
  const { film } = state;
  const { steps, live, since, texts, failure, newest, changes, ...header } = film.header;
  const shape = JSON.stringify([header, film.width]);
  for (const figure of state.figures) {
    const { definition } = figure;
    const there = film.steps.length > 0 && (definition.shown?.(film) ?? true);
    show(figure.section, there);
    if (!there) continue;
    const wanted = shape + JSON.stringify(definition.shape?.(film) ?? null);
    const title = textOf(definition.title, film);
    say(figure.title, title);
    figure.named(title);
    say(figure.hint, textOf(definition.hint, film));
    if (figure.shape !== wanted) Object.assign(figure, { shape: wanted, drawn: null, stale: true });
  }
  arrangePlayer(state);
}

function draw(state, figure) {
  const { film } = state, { body, definition } = figure;
  if (!film.steps.length) return;
  if (!figure.drawn) {
    const focused = body.contains(document.activeElement) && document.activeElement.dataset.focus;
    body.replaceChildren();
    body.style.minHeight = "";
    figure.drawn = definition.build(film, body) ?? {};
    figure.measured = null;
    body.style.minHeight = `${Math.min(body.offsetHeight, definition.height ?? 120)}px`;
    body.setAttribute("role", body.querySelector("button, select, input, a, table, [tabindex]") ? "group" : "img");
    if (focused) body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }
  figure.stale = false;
  definition.update(film, figure.drawn);
  if (figure.measured === film.version) return; // reading a width is slow while a film plays
  figure.measured = film.version;
  for (const box of body.querySelectorAll(".ak-scroll:not([tabindex])")) {
    if (box.scrollWidth <= box.clientWidth) continue;
    box.tabIndex = 0;
    body.setAttribute("role", "group");
  }
}

function describe({ film }, figure) {
  if (figure.drawn) set(figure.body, "aria-label", figure.definition.finding(film));
}

// The player.

const ICONS = { play: "M4 2.5V13.5L13.5 8Z", pause: "M3.5 2.5H6.8V13.5H3.5ZM9.2 2.5H12.5V13.5H9.2Z", first: "M3 3H5V13H3ZM13 3V13L6 8Z", last: "M11 3H13V13H11ZM3 3V13L10 8Z" };

function playerButton(parent, icon, name, press) {
  const button = el("button", "ak-player-button", parent);
  button.type = "button";
  const path = svg("path", { d: ICONS[icon] }, svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, button));
  button.setAttribute("aria-label", name);
  button.title = name;
  button.onclick = press;
  return { button, path };
}

function buildPlayer(state) {
  const { film } = state;
  const bar = el("div", "ak-player", state.root);
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Moment of training");
  const row = el("div", "ak-player-row", bar);
  const play = playerButton(row, "play", "Play", () => (state.playing ? pause(state) : playFilm(state)));
  playerButton(row, "first", "First step", () => film.go(0));
  const range = el("input", "ak-range", row);
  Object.assign(range, { type: "range", min: 0, max: 0, step: 1, value: 0 });
  range.setAttribute("aria-label", "Training step");
  range.oninput = () => film.go(Number(range.value));
  playerButton(row, "last", "Last step", () => film.go(film.steps.length - 1));
  const step = el("span", "ak-step", row, "");
  const legend = el("div", "ak-film-legend", bar);
  return { bar, play, range, step, legend, values: [] };
}

function arrangePlayer(state) {
  const { film, player } = state;
  show(player.bar, film.moment !== "");
  set(player.range, "max", Math.max(0, film.steps.length - 1));
  player.step.style.minWidth = `${String(film.header.total_steps ?? "").length * 2 + 9}ch`;
  const wanted = JSON.stringify([film.variants, film.header.seed]);
  if (player.variants === wanted) return;
  player.variants = wanted;
  player.legend.replaceChildren();
  player.values = film.variants.map((variant, v) => {
    const item = el("span", "", player.legend);
    lineSample(item, { color: variant.color, dash: dashOf(variant, v) });
    el("span", "", item, variant.name);
    return el("b", "", item, "");
  });
  const runs = film.variants.length > 1 ? "one run each" : "one run";
  if (film.header.seed !== undefined) el("span", "ak-runs", player.legend, `Right answers on held-out questions; ${runs}, seed ${film.header.seed}.`);
}

function drawPlayer({ film, player, playing }) {
  const at = String(film.at), total = number(film.header.total_steps, 0);
  if (player.range.value !== at) player.range.value = at;
  set(player.range, "aria-valuetext", `step ${number(film.step, 0)} of ${total}`);
  say(player.step, `step ${number(film.step, 0)} of ${total}`);
  set(player.play.path, "d", playing ? ICONS.pause : ICONS.play);
  set(player.play.button, "aria-label", playing ? "Pause" : "Play");
  player.play.button.title = playing ? "Pause" : "Play";
  if (film.shape("accuracy")) player.values.forEach((value, v) => say(value, percent(film.value("accuracy", [v]))));
}

function moveTo(state, k) {
  const { film } = state;
  film.at = clamp(k, 0, Math.max(0, film.steps.length - 1));
  film.following = film.at === film.steps.length - 1;
  schedule(state);
}

/** Draw before the next picture of the screen, however often it is asked for. */
function schedule(state) {
  state.waiting ??= requestAnimationFrame(() => drawAll(state));
}

function drawAll(state) {
  cancelAnimationFrame(state.waiting);
  state.waiting = undefined;
  const began = performance.now();
  if (!state.film.steps.length) return;
  drawPlayer(state);
  keepHeight(state);
  say(state.conclusion, (state.film.step && state.film.header.failure) || (state.film.sentencesOf("conclusion") ?? ""));
  for (const figure of state.figures) {
    figure.stale = true;
    if (figure.visible && isThere(figure)) draw(state, figure);
  }
  state.moves += 1;
  state.root.dataset.moves = state.moves;
  state.root.dataset.step = state.film.step;
  state.root.dataset.milliseconds = (performance.now() - began).toFixed(2);
  clearTimeout(state.resting);
  state.resting = setTimeout(() => rest(state), REST);
}

/** Make the conclusion as tall as the tallest of all steps, so that nothing below it moves. */
function keepHeight(state) {
  const { film, conclusion } = state;
  const about = `${film.key} ${film.frames.size} ${conclusion.clientWidth}`;
  if (state.about === about) return;
  state.about = about;
  const texts = new Set([...film.frames.values()].map(({ sentences }) => sentences.conclusion ?? ""));
  conclusion.style.minHeight = ""; // the two lines of the style sheet, for a film without texts
  const heights = [...texts].sort((one, other) => other.length - one.length).slice(0, 3).map((text) => {
    say(conclusion, text);
    return conclusion.offsetHeight;
  });
  if (heights.length) conclusion.style.minHeight = `${Math.max(...heights)}px`;
}

/** Once it stands still: say in words what is shown. */
function rest(state) {
  if (state.playing) return;
  for (const figure of state.figures) if (figure.visible && !figure.stale) describe(state, figure);
  state.root.dataset.described = state.film.step;
}

function playFilm(state) {
  const { film } = state, last = film.steps.length - 1;
  const from = film.at >= last ? 0 : film.at, began = performance.now();
  const tick = (now) => {
    const at = from + Math.floor(((now - began) / 1000 / PLAY_SECONDS) * last);
    if (at >= film.steps.length - 1) pause(state);
    else state.playing = requestAnimationFrame(tick);
    if (at !== film.at || !state.playing) moveTo(state, Math.max(0, at));
  };
  state.playing = requestAnimationFrame(tick);
  schedule(state);
}

function pause(state) {
  if (!state.playing) return;
  cancelAnimationFrame(state.playing);
  state.playing = 0;
  schedule(state);
}
