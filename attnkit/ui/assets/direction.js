// The Asymmetry page: what it concludes, the scores of both directions, and all scores of an example.
// Arrays are those of attnkit/analysis/inspection/symmetry.py.

import {
  diverging, el, heatMap, limitOf, number, panelGrid, panelTitle, percent, scaleLegend,
  textWidth, twoNumbers,
} from "./ink.js";
import { lacks, titled } from "./heads.js";
import { everyone, listed, percents, verb } from "./sentences.js";
import { variantTable } from "./tables.js";
import { say } from "./panels.js";

export const ROUNDING = 1e-5;
// Attention is split evenly, and the direction lost, if the shares on the right and the mirrored
// entry differ by less than EVEN, are together above ATTENDED, and the accuracy is below LOST.
const EVEN = 0.05, ATTENDED = 0.3, LOST = 0.7, SOLVED = 0.99, LEAST_CELL = 9;
const NEARLY = 0.01; // asymmetry below which scores are called nearly the same

export const chosenLayer = (film) => film.header.request.layer;
export const chosenHead = (film) => film.header.request.head;
export const hasHead = (film, p) => film.shape(`${p}.scores`) !== undefined;
export const square = (film) => film.header.square !== false;

/** Whether the attention on the right (0) or the mirrored (1) entry is known at any step. */
export const hasMass = (film, c) => film.variants.some((_, p) => film.steps.some((_, k) => Number.isFinite(film.value(`${p}.mass`, [c], k))));

/** A question of the example and the entry that holds its answer: two positions that are shown, or null. */
const pairOf = ({ header }) => header.pair;

/** The names of the pair's two directions; null if no pair is shown. */
function directionsOf(film) {
  const pair = pairOf(film);
  if (!pair) return null;
  const { labels, positions } = film.header, alike = labels[pair[0]] === labels[pair[1]];
  const [one, other] = pair.map((k) => (alike ? `${labels[k]} (token ${positions[k] + 1})` : labels[k]));
  return [`${one}→${other}`, `${other}→${one}`];
}

/** What a variant's scores and attention are like at the shown step. */
function stateOf(film, p) {
  const [right, mirrored] = film.get(`${p}.mass`), accuracy = film.value("accuracy", [p]);
  const error = film.value(`${p}.error`, [chosenLayer(film), 1]), equal = error < ROUNDING, attended = right + mirrored > ATTENDED;
  return {
    name: film.variants[p].name, right, mirrored, accuracy, equal, known: Number.isFinite(error),
    differs: !equal && !(film.value(`${p}.a`, [chosenLayer(film), Math.min(chosenHead(film), film.variants[p].n_heads - 1)]) < NEARLY),
    tied: equal && film.get(`${p}.must`)[0] > 0,
    lost: attended && Math.abs(right - mirrored) < EVEN && accuracy < LOST,
    tells: attended && right > 2 * mirrored,
  };
}

const namesOf = (states) => states.map(({ name }) => name);
const rightOf = (states) => percents(states.map(({ accuracy }) => accuracy));

const HELD_OUT = "of held-out questions";

/** The sentence to take away at the shown step. */
export function concludeDirection(film) {
  if (!square(film)) return "Queries and keys belong to different sequences here, so a score has no opposite direction.";
  const states = film.variants.map((_, p) => stateOf(film, p)).filter(({ known }) => known), tied = states.filter((state) => state.tied);
  if (!states.length) return "Training diverged, so there are no scores to compare.";
  const pair = directionsOf(film)?.join(" and ") ?? "both directions";
  return tied.length ? aboutTied(film, tied, states.filter((state) => !state.tied), pair) : aboutFree(film, states, pair);
}

/** About variants whose scores must be symmetric, and the others beside them. */
function aboutTied(film, tied, others, pair) {
  const same = `${listed(namesOf(tied))} ${verb(tied, "scores", "score")} ${pair} the same`;
  const rest = others.length === 1 ? others[0].name : "The others", right = rightOf(tied);
  if (film.step === 0) {
    const differ = others.length && others.every(({ differs }) => differs);
    return `${same}, even before training.${differ ? ` ${rest} ${verb(others, "scores", "score")} them differently.` : ""}`;
  }
  const lost = tied.filter((state) => state.lost), tell = others.filter((state) => state.tells);
  if (lost.length) {
    const cannot = "cannot tell the two directions apart";
    const first = lost.length === tied.length ? `${same}, so ${verb(tied, "it", "they")} ${cannot}` : `${same}. ${listed(namesOf(lost))} ${cannot}`;
    const able = tell.length === others.length ? rest : listed(namesOf(tell));
    return `${first}: ${rightOf(lost)} ${HELD_OUT} right.${tell.length ? ` ${able} can: ${rightOf(tell)} right.` : ""}`;
  }
  if (!right) return `${same}.`;
  if (tied.every(({ accuracy }) => accuracy >= SOLVED)) return `${same}, and that costs nothing here: ${right} ${HELD_OUT} right.`;
  const beside = rightOf(others);
  return `${same}, and ${verb(tied, "it is", "they are")} right in ${right} ${HELD_OUT}.${beside ? ` ${rest} ${verb(others, "is", "are")} right in ${beside}.` : ""}`;
}

/** About variants of which none must have symmetric scores. */
function aboutFree(film, states, pair) {
  const who = everyone(namesOf(states)), right = rightOf(states);
  const same = states.filter(({ equal }) => equal);
  if (same.length) return `${listed(namesOf(same))} ${verb(same, "scores", "score")} ${pair} the same here, although nothing forces ${verb(same, "it", "them")} to${right && film.step ? `: ${rightOf(same)} ${HELD_OUT} right` : ""}.`;
  const nearly = states.filter(({ differs }) => !differs).length;
  if (nearly && nearly < states.length) return `No variant here scores both directions exactly the same${right && film.step ? `: ${right} ${HELD_OUT} right` : ""}.`;
  const differ = `${who} ${verb(states, "scores", "score")} ${pair} ${nearly ? "nearly the same" : "differently"}`;
  if (film.step === 0) return `${differ}, even before training.`;
  const tell = states.filter((state) => state.tells), apart = "the two directions apart";
  if (tell.length === states.length) return `${differ}, and ${verb(states, "tells", "tell")} ${apart}: ${right} ${HELD_OUT} right.`;
  if (tell.length) return `${differ}. ${listed(namesOf(tell))} ${verb(tell, "tells", "tell")} ${apart}: ${rightOf(tell)} ${HELD_OUT} right.`;
  return `${differ}${right ? `, and ${verb(states, "is", "are")} right in ${right} ${HELD_OUT}` : ""}.`;
}

const signOf = ({ known, equal, differs }) => (known ? (equal ? "=" : differs ? "≠" : "≈") : "");
const SIGNS = { "=": "= the same", "≈": "≈ nearly the same", "≠": "≠ different" };

/** The columns of the table: a heading, and the text of a variant's cell. */
function columnsOfTable(film) {
  const directions = directionsOf(film), pair = pairOf(film), columns = [];
  const scores = (p, state) => {
    if (!hasHead(film, p)) return ["–", "–"];
    const all = film.part(`${p}.scores`, [0]), n = film.header.labels.length, [i, j] = pair;
    return twoNumbers(all[i * n + j], all[j * n + i], state.equal);
  };
  if (square(film) && directions) {
    columns.push([`score ${directions[0]}`, (p, state) => scores(p, state)[0]]);
    columns.push([`score ${directions[1]}`, (p, state) => `${signOf(state)} ${scores(p, state)[1]}`.trim()]);
  } else if (square(film)) columns.push(["both directions", (_, state) => SIGNS[signOf(state)] ?? "–"]);
  if (hasMass(film, 0)) columns.push(["attention on the right entry", (_, { right }) => percent(right)]);
  if (hasMass(film, 1)) columns.push(["attention on the mirrored entry", (_, { mirrored }) => percent(mirrored)]);
  columns.push(["accuracy", (_, { accuracy }) => percent(accuracy)]);
  return columns;
}

export const directionTable = {
  name: "meaning",
  title: (film) => (square(film) ? titled("The score there, and the score back")(film) : "Attention and accuracy"),
  hint: (film) => {
    if (!square(film)) return "Choose an encoder or decoder layer above to compare two directions. The weights of this layer can be compared: see More figures.";
    const several = film.header.notes.some(({ n_maps }) => n_maps > 1) ? " Of a head with several maps, the scores are those of the first." : "";
    return `= both directions have the same score, ≈ nearly the same. Scores are those of one example, before masks and softmax.${several} Percentages are means over held-out questions, with seed ${film.header.seed}.`;
  },
  height: 190,
  shape: (film) => columnsOfTable(film).map(([heading]) => heading),
  build(film, body) {
    const columns = columnsOfTable(film);
    return { columns, cells: variantTable(film, body, columns.map(([heading]) => heading)) };
  },
  update(film, { columns, cells }) {
    cells.forEach((row, p) => {
      const state = stateOf(film, p);
      row.forEach((cell, c) => say(cell, columns[c][1](p, state)));
    });
  },
  finding: (film) => film.variants.map((variant, p) => {
    const state = stateOf(film, p);
    return `${variant.name}: ${columnsOfTable(film).map(([heading, text]) => `${heading} ${text(p, state)}`).join(", ")}.`;
  }).join(" "),
  table: (film) => {
    const pair = pairOf(film), n = film.header.labels.length;
    return {
      columns: ["variant", "must be symmetric", "score there", "score back", "max|S−Sᵀ|", "max|S−Sᵀ|/max|S|", "attention right", "attention reversed", "accuracy", "asymmetry"],
      rows: film.variants.map((variant, p) => {
        const s = pair && hasHead(film, p) ? film.part(`${p}.scores`, [0]) : null;
        const scores = s ? [s[pair[0] * n + pair[1]], s[pair[1] * n + pair[0]]] : [NaN, NaN];
        return [variant.text, film.get(`${p}.must`)[0], ...scores, ...film.part(`${p}.error`, [chosenLayer(film)]), ...film.get(`${p}.mass`), film.value("accuracy", [p]), film.value("asymmetry", [p])];
      }),
    };
  },
};

/** Call `draw(box, variant, p)` for each map of scores of each variant, below the variant's name. */
export const mapsOf = (film, boxes, draw) => film.variants.map((variant, p) => {
  const box = boxes[p], { n_maps: n } = film.header.notes[p];
  panelTitle(box, variant);
  if (!hasHead(film, p)) {
    el("p", "", box, lacks(variant));
    return [];
  }
  return Array.from({ length: n }, (_, m) => {
    if (n > 1) el("div", "ak-quiet-text", box, `Map ${m + 1} of ${n}`);
    return draw(box, variant, p);
  });
});

/** What is left out of maps that have a limit of positions. */
export const cutText = ({ header: { labels, n_looked_at: all } }) => (labels.length < all ? ` Shown are ${labels.length} of ${all} positions.` : "");

export const scoreMaps = {
  name: "scores",
  title: titled("All scores of one example"),
  hint: (film) => {
    const { target, reverse } = film.header, marks = [];
    if (target.some((j) => j >= 0)) marks.push(" Outlined: the right entry.");
    if (reverse.some((j) => j >= 0)) marks.push(" Dot in the corner: the mirrored entry, which points back.");
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
    if (!hasHead(film, p)) return `${variant.name}: ${lacks(variant)}`;
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
