// The Attention page: the maps of two variants subtracted, and what training does to attention.

import {
  diverging, el, limitOf, number, percent, scaleLegend, show,
} from "./ink.js";
import { heatMap } from "./maps.js";
import { chosenPlace, columnsOf, lackingOf, mapOf, placeText, shownPlace } from "./followed.js";
import { chartsFigure } from "./charts.js";
import { say } from "./panels.js";

/** Which two variants are compared: those chosen, else QKV and Q=K, else the first two. */
function comparedPair(film) {
  const names = film.variants.map(({ text }) => text), known = film.own.pair ?? [];
  if (known.every((p) => p < names.length) && known.length) return known;
  const first = Math.max(0, names.indexOf("QKV")), second = names.indexOf("Q=K");
  return [first, second >= 0 && second !== first ? second : first ? 0 : 1];
}

function pairPicker(film, parent, label, which) {
  const box = el("label", "", parent, `${label} `), select = el("select", "", box);
  select.setAttribute("aria-label", `Variant ${label}`);
  select.dataset.focus = `pair${which}`;
  film.variants.forEach(({ name }, p) => (el("option", "", select, name).value = p));
  select.onchange = () => {
    const pair = [...comparedPair(film)];
    pair[which] = Number(select.value);
    film.own.pair = pair;
    film.redraw();
  };
  return select;
}

/** A − B at a frame, or null if one of them has no such map. */
function differenceOf(film, place, k = film.at) {
  const pair = comparedPair(film);
  if (pair.some((p) => lackingOf(film.variants[p], place))) return null;
  const [a, b] = pair.map((p) => mapOf(film, p, place, k));
  return a.map((value, c) => value - b[c]);
}

export const differenceFigure = {
  name: "difference",
  title: "A − B: where two variants look differently",
  hint: "The same map as above, subtracted. Red: A looks there more; blue: B does. One scale for the whole training.",
  height: 320,
  shown: (film) => film.variants.length > 1,
  shape: (film) => [shownPlace(film).layer],
  build(film, body) {
    const layer = film.header.layers[shownPlace(film).layer];
    const line = el("div", "ak-controls", body);
    const pickers = ["A", "B"].map((label, which) => pairPicker(film, line, label, which));
    const place = el("span", "", line, ""), note = el("div", "ak-panel-note", body, "");
    const map = heatMap(film, el("div", "ak-scroll", body), {
      rows: layer.rows,
      columns: layer.columns,
      width: Math.min(film.width, 720),
      rowTokens: layer.row_positions,
      columnTokens: columnsOf(layer),
      target: layer.target,
      reverse: layer.reverse,
      tell: (i, j, value) => `${layer.rows[i]} attends to ${layer.column_titles[j]}\nA − B: ${number(value, 3)}`,
    });
    return { pickers, place, note, map, legend: scaleLegend(body), limit: {} };
  },
  update(film, { pickers, place: words, note, map, legend, limit }) {
    const place = shownPlace(film), pair = comparedPair(film), difference = differenceOf(film, place);
    pickers.forEach((select, which) => {
      if (select.value !== String(pair[which])) select.value = pair[which];
    });
    say(words, placeText(film, place));
    const lacking = pair.map((p) => lackingOf(film.variants[p], place)).find(Boolean) ?? "";
    say(note, lacking);
    show(note, Boolean(lacking));
    show(map.node, difference !== null);
    if (!difference) return;
    const of = JSON.stringify([place, pair, film.version]);
    if (limit.of !== of) Object.assign(limit, { of, value: limitOf(...film.steps.map((_, k) => differenceOf(film, place, k))) });
    const scale = diverging(limit.value);
    legend.update(scale, `${film.variants[pair[0]].name} − ${film.variants[pair[1]].name}, attention weight`);
    map.update(difference, scale);
  },
  finding(film) {
    const place = shownPlace(film), difference = differenceOf(film, place), [a, b] = comparedPair(film).map((p) => film.variants[p].name);
    if (!difference) return "One of the two has no such map.";
    const layer = film.header.layers[place.layer], m = layer.columns.length;
    const most = difference.reduce((best, value, c) => (Math.abs(value) > Math.abs(difference[best]) ? c : best), 0);
    const who = difference[most] > 0 ? a : b;
    return `${a} minus ${b} at step ${film.step}: they differ most where ${layer.rows[Math.floor(most / m)]} attends to ` +
      `${layer.column_titles[most % m]}: ${who} has ${percent(Math.abs(difference[most])).replace("%", "")} percentage points more there.`;
  },
  table(film) {
    const place = shownPlace(film), layer = film.header.layers[place.layer], m = layer.columns.length;
    const difference = differenceOf(film, place) ?? [];
    return {
      columns: ["step", "row", ...layer.column_titles],
      rows: difference.length ? layer.rows.map((text, i) => [film.step, text, ...difference.slice(i * m, (i + 1) * m)]) : [],
    };
  },
};

/** Mean attention on the right (0) or the mirrored (1) entry, at a frame. */
function massOf(film, p, { layer, head }, which, k) {
  const name = `${p}.mass`, { n_heads: n } = film.variants[p];
  if (!film.shape(name) || (head !== null && head >= n)) return NaN;
  if (head !== null) return film.value(name, [layer, head, which], k);
  let sum = 0;
  for (let h = 0; h < n; h++) sum += film.value(name, [layer, h, which], k);
  return sum / n;
}

const massLines = (film, which) => film.variants.map((variant, p) => ({
  ...variant,
  values: () => film.steps.map((_, k) => massOf(film, p, chosenPlace(film), which, k)),
}));

/** Whether a task has right (0) or mirrored (1) entries to look at. */
const hasMass = (film, which) => massLines(film, which).some((line) => line.values().some((value) => !Number.isNaN(value)));

export const massFigure = chartsFigure({
  name: "mass",
  title: "Accuracy and attention, by training step",
  hint: (film) => "The vertical line is the moment shown; press anywhere to go there. Attention is the mean over " +
    `${film.header.n_examples} held-out examples${placeText(film, chosenPlace(film)) && `, ${placeText(film, chosenPlace(film))}`}.`,
  shape: (film) => [chosenPlace(film), hasMass(film, 0), hasMass(film, 1)],
  charts(film) {
    const { chance } = film.header, shares = { low: 0, high: 1, text: percent };
    const accuracy = film.variants.map((variant, p) => ({ ...variant, values: () => film.line("accuracy", [p]) }));
    return [
      { ...shares, lines: accuracy, levels: chance > 0 ? [{ value: chance, text: `chance ${percent(chance)}` }] : [], label: "accuracy" },
      ...[0, 1].filter((which) => hasMass(film, which)).map((which) => ({
        ...shares, lines: massLines(film, which), label: `attention on the ${which ? "mirrored" : "right"} entry`,
      })),
    ];
  },
});
