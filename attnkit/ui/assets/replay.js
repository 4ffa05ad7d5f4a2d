// Replay of a finished experiment: its stored evaluations as curves, under the player of all films.
// Arrays and header: attnkit/figures/replay.py.

import { number, percent } from "./ink.js";
import { lineChart } from "./charts.js";
import { filmPage } from "./film.js";

const IN_NATS = "loss", OF_SCORES = "asymmetry"; // all other measures are shares, told in percent

const isShare = (measure) => measure !== IN_NATS && measure !== OF_SCORES;
const isMain = (film, measure) => film.header.request.metric === measure;

/** What all variants have at the shown step, in words. */
export function valuesOf(film, measure) {
  const told = isShare(measure) ? percent : (value) => number(value, 2);
  const values = film.variants.map(({ name }, v) => `${name} ${told(film.value(measure, [v]))}`);
  return `${film.header.curves[measure]} at step ${film.step}: ${values.join(", ")}.`;
}

/** Whose mean is drawn, and what the bands are, if there are any. */
export function meansOf(film, measure) {
  const seeds = film.header.n_seeds;
  if (seeds === 1) return "One seed.";
  const varies = film.variants.some((_, v) => {
    const low = film.line(`${measure}_low`, [v]);
    return film.line(`${measure}_high`, [v]).some((high, k) => high > low[k]);
  });
  return `Means of ${seeds} seeds${varies ? "; bands: 95% intervals" : ""}.`;
}

function levelsOf({ header }, measure) {
  if (measure === "accuracy") return [{ value: header.chance, text: "chance" }];
  const known = measure === IN_NATS && header.loss_to_beat !== null;
  return known ? [{ value: header.loss_to_beat, text: header.simple_model }] : [];
}

/** The curves of one measure; `main` is whether it is the one that the sentence is about. */
const curves = (measure, main) => ({
  name: main ? measure : `more-${measure}`,
  title: (film) => film.header.curves[measure] ?? "",
  hint: (film) => (measure in film.header.curves ? meansOf(film, measure) : ""),
  height: 240,
  shown: (film) => measure in film.header.curves && isMain(film, measure) === main,
  build(film, body) {
    const curveOf = (end, v) => () => film.line(`${measure}${end}`, [v]);
    return lineChart(film, body, {
      lines: film.variants.map(({ name, color }, v) => ({ name, color, values: curveOf("", v), low: curveOf("_low", v), high: curveOf("_high", v) })),
      levels: levelsOf(film, measure),
      height: 240,
      low: 0,
      ...(measure === IN_NATS ? {} : { high: 1 }),
      ...(isShare(measure) ? { text: percent } : {}),
    });
  },
  update: (_, chart) => chart.update(),
  finding: (film) => valuesOf(film, measure),
  table: (film) => ({
    columns: ["step", "variant", measure, "low", "high", ...(measure === OF_SCORES ? [] : [OF_SCORES])],
    rows: film.steps.flatMap((step, k) => film.variants.map(({ text }, v) => {
      const names = [measure, `${measure}_low`, `${measure}_high`, ...(measure === OF_SCORES ? [] : [OF_SCORES])];
      return [step, text, ...names.map((name) => (film.shape(name) ? film.value(name, [v], k) : NaN))];
    })),
  }),
});

export default function showReplay(component) {
  return filmPage(component, {
    figures: [curves("accuracy", true), curves("loss", true)],
    more: ["accuracy", "loss", "asymmetry", "mass_on_target", "mass_on_reverse"].map((measure) => curves(measure, false)),
  });
}
