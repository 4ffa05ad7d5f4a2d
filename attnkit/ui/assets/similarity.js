// The Similarity page: how alike queries, keys and values are, in weights and in activations.
// Arrays are those of attnkit/analysis/inspection/similarity.py.

import { titled } from "./heads.js";
import { clamp, el, number, panelGrid, panelTitle, set, share, show, svg } from "./ink.js";
import { alikeAt, notesOf, PAIR_INK, pairName, RANDOM, randomAt, range, readsAll } from "./pairs.js";
import { lineChart, lineLegend } from "./charts.js";
import { tableFigure, variantHeading } from "./tables.js";
import { filmPage } from "./film.js";
import { jointFigure } from "./joint.js";
import { say } from "./panels.js";

const NARROWEST = 170, BAR = 64, BAR_HEIGHT = 12;

/** A bar from 0 to 1 below a number, with the range of random matrices in grey. */
function alikeBar(cell) {
  const node = svg("svg", { width: BAR, height: BAR_HEIGHT, class: "ak-alike-bar", "aria-hidden": "true" }, cell);
  svg("path", { d: `M0 ${BAR_HEIGHT / 2}H${BAR}`, class: "ak-zero" }, node);
  const band = svg("rect", { y: 1, height: BAR_HEIGHT - 2, fill: RANDOM, "fill-opacity": 0.45 }, node);
  const mark = svg("path", { d: `M0 0V${BAR_HEIGHT}`, stroke: "currentColor", "stroke-width": 2.5 }, node);
  const at = (value) => BAR * clamp(value, 0, 1);
  return (value, [, low, high]) => {
    const shown = /\d/.test(cell.firstChild.data) && Number.isFinite(low);
    show(node, shown);
    if (!shown) return;
    set(mark, "transform", `translate(${at(value).toFixed(1)} 0)`);
    set(band, "x", at(low).toFixed(1));
    set(band, "width", Math.max(1, at(high) - at(low)).toFixed(1));
    set(cell, "title", `random matrices: ${range([0, low, high])}`);
  };
}

const alikeTable = tableFigure({
  name: "alike",
  title: titled("How alike are their vectors?"),
  hint: "CKA: 1 if both arrange the tokens alike, 0 if their arrangements have nothing in common. Grey: what random matrices give on the same inputs, in 95 of 100 draws. ▲ more alike, ▼ less alike, = as alike.",
  height: 200,
  columns: (film) => film.header.pairs.map(pairName),
  table: (film) => measureTable(film, film.header.measures, [film.at]),
});

const verdicts = {
  ...alikeTable,
  build(film, body) {
    const cells = alikeTable.build(film, body);
    return { cells, bars: cells.map((row) => row.map(alikeBar)) };
  },
  update(film, { cells, bars }) {
    alikeTable.update(film, cells);
    bars.forEach((row, p) => row.forEach((draw, c) => draw(alikeAt(film, p, c, "cka_activations"), randomAt(film, p, c, "cka_activations"))));
  },
};

/** Measures with their random ranges, at some frames. */
function measureTable(film, measures, frames) {
  const rows = [];
  for (const k of frames) {
    film.variants.forEach((variant, p) => film.header.pairs.forEach((pair, c) => measures.forEach((name) => {
      rows.push([film.steps[k], variant.text, pair, name, alikeAt(film, p, c, name, k), ...randomAt(film, p, c, name, k)]);
    })));
  }
  return { columns: ["step", "variant", "pair", "measure", "value", "random mean", "random low", "random high"], rows };
}

/** The lowest value of an axis that all panels of a measure share. */
function lowest(film, name) {
  let low = 0;
  film.variants.forEach((_, p) => film.header.pairs.forEach((_, c) => film.steps.forEach((_, k) => {
    low = Math.min(low, alikeAt(film, p, c, name, k) || 0, randomAt(film, p, c, name, k)[1] || 0);
  })));
  return low < -0.5 ? -1 : low < -0.25 ? -0.5 : low < 0 ? -0.25 : 0;
}

/** A figure of charts over training: per variant one for each measure, a line for each pair. */
function overTraining({ name, title, hint, measures, shown }) {
  const names = measures.map((measure) => measure.name);
  return {
    name, title, hint, shown,
    height: 470,
    shape: (film) => names.map((measure) => lowest(film, measure)),
    build(film, body) {
      const pairs = film.header.pairs.map((pair) => ({ ...PAIR_INK[pair], name: pairName(pair) }));
      lineLegend(body, [...pairs, { name: "random matrices, 95%", color: RANDOM, dash: "longdash" }]);
      const grid = panelGrid(film, body, film.variants.length, NARROWEST, 2 + measures.length);
      return film.variants.flatMap((variant, p) => {
        const box = grid.boxes[p];
        panelTitle(box, variant);
        if (!notesOf(film, p).has_head) {
          el("div", "ak-panel-note", box, variant.lacking);
          return [];
        }
        const charts = measures.map((measure) => {
          const lines = pairs.map((pair, c) => ({ ...pair, values: () => film.steps.map((_, k) => alikeAt(film, p, c, measure.name, k)) }));
          const c = [0, 1, 2].find((each) => !Number.isNaN(randomAt(film, p, each, measure.name)[0])) ?? 2;
          const of = (z) => film.steps.map((_, k) => randomAt(film, p, c, measure.name, k)[z]);
          const random = { name: "random", color: RANDOM, dash: "longdash", values: () => of(0), low: () => of(1), high: () => of(2) };
          return lineChart(film, box, {
            lines: [random, ...lines], low: lowest(film, measure.name), high: 1, label: measure.label, width: grid.inner, height: 165,
          });
        });
        const { widths, n_maps } = notesOf(film, p), remarks = [];
        if (widths[2] !== widths[1]) remarks.push("Values have another width than keys: grey is for Q and K.");
        if (n_maps > 1) remarks.push("The queries of its two maps are taken side by side, and so are the keys.");
        if (remarks.length) el("div", "ak-quiet-line", box, remarks.join(" "));
        return charts;
      });
    },
    update: (_, charts) => charts.forEach((chart) => chart.update()),
    finding: (film) => film.variants.map((variant, p) => {
      const parts = notesOf(film, p).has_head ? film.header.pairs.map((pair, c) => {
        const numbers = measures.map(({ name: measure, label }) => {
          const value = alikeAt(film, p, c, measure), random = randomAt(film, p, c, measure);
          return `${label} ${share(value)}${Number.isFinite(random[0]) ? ` (random ${range(random)})` : ""}`;
        });
        return `${pairName(pair)}: ${numbers.join(", ")}`;
      }) : [variant.lacking];
      return `${variant.name}. ${parts.join("; ")}.`;
    }).join(" "),
    table: (film) => measureTable(film, names, film.steps.map((_, k) => k)),
  };
}

const weights = overTraining({
  name: "weights",
  title: titled("Weights: are the matrices alike?"),
  hint: (film) => {
    const all = film.variants.every((_, p) => readsAll(film, p)) ? " Here heads are as wide as the model, so each reads everything and the overlap is 1." : "";
    return "The matrices by themselves, whatever comes in. The cosine compares them number by number; the overlap asks how far both read the same " +
      `directions of the input. V has axes of its own, so its cosine says little.${all}`;
  },
  measures: [{ name: "cos_weights", label: "cosine" }, { name: "overlap", label: "overlap" }],
});

const activations = overTraining({
  name: "activations",
  title: titled("Activations: is what they make of tokens alike?"),
  hint: (film) => {
    const missing = film.header.square ? "" : " Here queries and keys come from different sequences: no token has both a query and a key.";
    return "The vectors of the tokens that do come in. CKA asks whether both see the same tokens as alike; the cosine compares the two vectors of each token. " +
      `Random matrices on the same inputs share a lot already: the grey band.${missing}`;
  },
  measures: [{ name: "cka_activations", label: "CKA" }, { name: "cos_activations", label: "mean cosine" }],
});

const SHORT_NAMES = { cos_weights: "cosine", overlap: "overlap", cka_weights: "CKA", cos_activations: "cosine", cka_activations: "CKA" };

/** What `each(variant, p, layer, head)` gives, for every head. */
const headsOf = (film, each) => film.variants.flatMap((variant, p) => film.header.places.flatMap((_, l) => Array.from({ length: variant.n_heads }, (__, head) => each(variant, p, l, head))));

const heads = {
  name: "heads",
  title: (film) => `Every head at step ${number(film.steps.at(-1), 0)}`,
  hint: "▲ more alike than random matrices, ▼ less alike, = as alike; 1 is the same. This table does not move with the slider.",
  height: 200,
  shape: (film) => film.variants.map(({ n_heads }) => n_heads),
  build(film, body) {
    const { pairs, measures } = film.header;
    const box = el("div", "ak-scroll", body); // with a stop for the keyboard: a table, not a picture
    Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: "All heads" });
    const table = el("table", "ak-table ak-heads-table", box), top = el("thead", "", table);
    const [first, second, third] = [0, 1, 2].map(() => el("tr", "", top)), n_weights = measures.indexOf("cos_activations");
    for (const name of ["variant", "layer", "head"]) Object.assign(el("th", "", first, name), { rowSpan: 3, scope: "col" });
    for (const pair of pairs) {
      Object.assign(el("th", "ak-group", first, pairName(pair)), { colSpan: measures.length, scope: "colgroup" });
      Object.assign(el("th", "ak-group", second, "weights"), { colSpan: n_weights, scope: "colgroup" });
      Object.assign(el("th", "", second, "activations"), { colSpan: measures.length - n_weights, scope: "colgroup" });
      measures.forEach((name, m) => (el("th", m ? "" : "ak-group", third, SHORT_NAMES[name]).scope = "col"));
    }
    const rows = el("tbody", "", table);
    return headsOf(film, (variant, p, l, head) => {
      const row = el("tr", "", rows);
      variantHeading(row, variant);
      el("td", "", row, film.header.places[l].replace(/^Layer /, ""));
      el("td", "", row, `${head + 1}`);
      return film.header.newest.heads[p][l][head].map((_, at) => el("td", at % measures.length ? "" : "ak-group", row, ""));
    });
  },
  update(film, drawn) {
    if (drawn.version === film.version) return;
    drawn.version = film.version;
    headsOf(film, (_, p, l, head) => film.header.newest.heads[p][l][head]).forEach((cells, i) => cells.forEach((text, at) => {
      say(drawn[i][at], text);
      drawn[i][at].classList.toggle("ak-apart", /[▲▼]/.test(text));
    }));
  },
  finding: (film) => film.header.newest.heads_in_words,
  table: (film) => ({
    columns: ["variant", "layer", "head", ...film.header.pairs.flatMap((pair) => film.header.measures.map((name) => `${pair} ${name}`))],
    rows: headsOf(film, (variant, p, l, head) => {
      const [, n, pairs, measures] = film.shape(`${p}.table`), size = pairs * measures, from = (l * n + head) * size;
      return [variant.text, film.header.places[l], head + 1, ...film.get(`${p}.table`).subarray(from, from + size)];
    }),
  }),
};

export default function showSimilarity(component) {
  return filmPage(component, { figures: [verdicts], more: [activations, weights, jointFigure, heads] });
}
