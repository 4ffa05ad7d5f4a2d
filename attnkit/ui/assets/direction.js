// The Asymmetry page: the scores of both directions, and all scores of an example.
// Arrays and sentences are those of attnkit/analysis/inspection/symmetry.py.

import {
  diverging, el, limitOf, number, panelGrid, panelTitle, scaleLegend, textWidth,
} from "./ink.js";
import { heatMap } from "./maps.js";
import { titled } from "./heads.js";
import { tableFigure } from "./tables.js";

const LEAST_CELL = 9;

export const chosenLayer = (film) => film.header.request.layer;
export const chosenHead = (film) => film.header.request.head;
export const hasHead = (film, p) => film.shape(`${p}.scores`) !== undefined;
export const square = (film) => film.header.square;

export const directionTable = tableFigure({
  name: "meaning",
  title: (film) => (square(film) ? titled("The score there, and the score back")(film) : "Attention and accuracy"),
  hint: (film) => {
    if (!square(film)) return "Choose an encoder or decoder layer above to compare two directions. The weights of this layer can be compared: see More figures.";
    const several = film.header.notes.some(({ n_maps }) => n_maps > 1) ? " Of a head with several maps, the scores are those of the first." : "";
    return `= both directions have the same score, ≈ nearly the same. Scores are those of one example, before masks and softmax.${several} Percentages are means over held-out questions, with seed ${film.header.seed}.`;
  },
  height: 190,
  columns: (film) => film.header.columns,
  table: (film) => {
    const { pair, labels } = film.header, n = labels.length;
    return {
      columns: ["variant", "must be symmetric", "score there", "score back", "max|S−Sᵀ|", "max|S−Sᵀ|/max|S|", "attention right", "attention reversed", "accuracy", "asymmetry"],
      rows: film.variants.map((variant, p) => {
        const s = pair && hasHead(film, p) ? film.part(`${p}.scores`, [0]) : null;
        const scores = s ? [s[pair[0] * n + pair[1]], s[pair[1] * n + pair[0]]] : [NaN, NaN];
        return [variant.text, film.get(`${p}.must`)[0], ...scores, ...film.part(`${p}.error`, [chosenLayer(film)]), ...film.get(`${p}.mass`), film.value("accuracy", [p]), film.value("asymmetry", [p])];
      }),
    };
  },
});

/** Call `draw(box, variant, p)` for each map of scores of each variant, below the variant's name. */
export const mapsOf = (film, boxes, draw) => film.variants.map((variant, p) => {
  const box = boxes[p], { n_maps: n } = film.header.notes[p];
  panelTitle(box, variant);
  if (!hasHead(film, p)) {
    el("p", "", box, variant.lacking);
    return [];
  }
  return Array.from({ length: n }, (_, m) => {
    if (n > 1) el("div", "ak-quiet-text", box, `Map ${m + 1} of ${n}`);
    return draw(box, variant, p);
  });
});

/** What is left out of maps that have a limit of positions. */
export const cutText = ({ header: { labels, n_keys: all } }) => (labels.length < all ? ` ${labels.length} of ${all} positions are shown.` : "");

export const scoreMaps = {
  name: "scores",
  title: (film) => titled(film.header.view === "sentence" ? "All scores of this sentence" : "All scores of one example")(film),
  hint: (film) => {
    const { target, reverse } = film.header, marks = [];
    if (target.some((j) => j >= 0)) marks.push(" Outlined: the right entry.");
    if (reverse.some((j) => j >= 0)) marks.push(" Circle: the mirrored entry, which points back.");
    return `Rows are queries, columns are keys.${marks.join("")}${cutText(film)}`;
  },
  height: 240,
  shown: square,
  build(film, body) {
    const { labels, full_labels: full, positions, target, reverse } = film.header;
    const legend = scaleLegend(body);
    const least = 12 + textWidth(labels) + LEAST_CELL * labels.length;
    const grid = panelGrid(film, body, film.variants.length, Math.min(film.width, Math.max(150, least)));
    return {
      legend,
      panels: mapsOf(film, grid.boxes, (box) => heatMap(film, el("div", "ak-scroll", box), {
        rows: labels, columns: labels, width: grid.inner, rowTokens: positions, columnTokens: positions, target, reverse,
        tell: (i, j, value) => `${full[i]}  →  ${full[j]}: ${number(value, 3)}`,
      })),
    };
  },
  update(film, { legend, panels }) {
    const scale = diverging(limitOf(...panels.flatMap((maps, p) => maps.map((_, m) => film.part(`${p}.scores`, [m])))));
    legend.update(scale, "score");
    panels.forEach((maps, p) => maps.forEach((map, m) => map.update(film.part(`${p}.scores`, [m]), scale)));
  },
  finding: (film) => film.variants.map((variant, p) => {
    if (!hasHead(film, p)) return `${variant.name}: ${variant.lacking}`;
    const own = Array.from(film.get(`${p}.scores`)).filter(Number.isFinite);
    return `${variant.name}: scores from ${number(Math.min(...own))} to ${number(Math.max(...own))}.`;
  }).join(" "),
  table: (film) => {
    const { labels, notes } = film.header, n = labels.length;
    const rows = film.variants.flatMap((variant, p) => (hasHead(film, p) ? Array.from({ length: notes[p].n_maps }, (_, m) => (
      Array.from(film.part(`${p}.scores`, [m]), (score, c) => [variant.text, m + 1, labels[Math.floor(c / n)], labels[c % n], score])
    )).flat() : []));
    return { columns: ["variant", "map", "query", "key", "S"], rows };
  },
};
