// The Asymmetry page: the two parts of S, asymmetry over training, and what of it reaches the attention.
// Arrays are those of attnkit/analysis/inspection/symmetry.py.

import { chosenHead, chosenLayer, directionTable, hasHead, scoreMaps, square } from "./direction.js";
import { el, limitOf, number, panelGrid, panelTitle, percent } from "./ink.js";
import { parts, stages } from "./score_parts.js";
import { titled } from "./heads.js";
import { chartsFigure, columnsChart } from "./charts.js";
import { filmPage } from "./film.js";
import { say } from "./panels.js";

const NARROWEST = 170;
const A_FORMULA = "a = ‖S − Sᵀ‖² / 4‖S‖² = (1 − s)/2";

const overVariants = (film, name, indices) => film.variants.map((variant, p) => ({ ...variant, values: () => film.line(`${p}.${name}`, indices) }));

const nHeads = (film) => film.shape("0.a")[1];

const overTraining = chartsFigure({
  name: "asymmetry",
  title: (film) => ["Asymmetry over training", film.header.places?.length > 1 && film.header.places[chosenLayer(film)]].filter(Boolean).join(" · "),
  hint: `${A_FORMULA}: 0 if all pairs score alike both ways, about ½ if the two scores of a pair are unrelated, 1 if they are opposite; mean over held-out examples. An untrained model has about ½ already, so a only describes the scores. The evidence for a direction is where the attention goes, above.`,
  shown: square,
  least: 260,
  charts: (film) => Array.from({ length: nHeads(film) }, (_, h) => ({
    title: nHeads(film) > 1 ? `Head ${h + 1}` : "",
    lines: overVariants(film, "a", [chosenLayer(film), h]),
    low: 0, high: 1, label: "asymmetry a", levels: [{ value: 0.5, text: "½: unrelated, or untrained" }],
  })),
});

const mass = chartsFigure({
  name: "mass",
  title: "Where the attention goes",
  hint: "Share of each question's attention on the entry that holds its answer, and on the one that points the other way; mean over held-out examples, heads and layers. Scores that are the same both ways give both the same share, unless something else tells them apart.",
  shown: (film) => film.header.n_masses > 0,
  charts: (film) => ["right", "mirrored"].slice(0, film.header.n_masses).map((entry, c) => ({
    lines: overVariants(film, "mass", [c]), low: 0, high: 1, text: percent, label: `attention on the ${entry} entry`,
  })),
});

const MEASURES = [["weight_symmetry", "symmetry s"], ["directionality", "directionality d"]];

const weights = chartsFigure({
  name: "weights",
  title: titled("The weights: M = W_Q W_Kᵀ"),
  hint: "s = (‖Mₛ‖² − ‖Mₐ‖²)/‖M‖²: 1 symmetric, 0 random, −1 antisymmetric. d = (r − c)/(r + c), where r adds up by how much row norms of M exceed their mean + 2 standard deviations, and c the same of columns: above 0, a few directions stand out in the query's token; below 0, in the key's token; 0 if nothing does. Q = K forces s = 1 and d = 0. Saponati et al. 2025.",
  charts: (film) => MEASURES.map(([name, label]) => ({
    lines: overVariants(film, name, [chosenLayer(film), chosenHead(film)]), low: -1, high: 1, label, levels: [{ value: 0, text: "" }],
  })),
});

const breakers = {
  name: "breakers",
  title: titled("Which positions break it"),
  hint: (film) => `For every position i the mean over j of |S_ij − S_ji| on this example. Then how much of Sₐ is the same in ${film.header.n_examples} examples with other tokens: that part does not depend on which tokens they are, only on positions and kinds of tokens.`,
  height: 150,
  shown: square,
  build(film, body) {
    const grid = panelGrid(film, body, film.variants.length, NARROWEST);
    const { all_labels: labels, notes } = film.header;
    return film.variants.map((variant, p) => {
      const box = grid.boxes[p];
      panelTitle(box, variant);
      if (!hasHead(film, p)) {
        el("p", "", box, variant.lacking);
        return null;
      }
      const tokens = labels.map((_, k) => k);
      const charts = Array.from({ length: notes[p].n_maps }, () => columnsChart(film, box, {
        n: labels.length, width: Math.min(grid.inner, 340), height: 56, color: variant.color, tokens,
        tell: (k, value) => `${labels[k]} (position ${k + 1}): ${number(value, 3)}`,
      }));
      const words = el("p", "ak-break", box, "");
      if (notes[p].rules) el("p", "ak-break", box, notes[p].rules);
      return { charts, words };
    });
  },
  update(film, drawn) {
    const all = drawn.flatMap((one, p) => (one ? [film.get(`${p}.gap`)] : []));
    const high = limitOf(...all) || 1;
    drawn.forEach((one, p) => {
      one?.charts.forEach((chart, m) => chart.update(film.part(`${p}.gap`, [m]), 0, high));
      if (one) say(one.words, film.sentencesOf("breakers")[p]);
    });
  },
  finding: (film) => film.variants.map(({ name }, p) => `${name}: ${film.sentencesOf("breakers")[p]} ${film.header.notes[p].rules}`).join(" "),
  table: (film) => ({
    columns: ["variant", "map", "position", "token", "mean |S_ij − S_ji|"],
    rows: film.variants.flatMap((variant, p) => (hasHead(film, p) ? Array.from({ length: film.header.notes[p].n_maps }, (_, m) => Array.from(film.part(`${p}.gap`, [m]), (gap, k) => [variant.text, m + 1, k + 1, film.header.all_labels[k], gap])).flat() : [])),
  }),
};

export default function showAsymmetry(component) {
  return filmPage(component, {
    figures: [directionTable, scoreMaps],
    more: [mass, overTraining, parts, stages, breakers, weights],
  });
}
