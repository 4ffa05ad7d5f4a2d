// Replay of a finished experiment: its stored evaluations as curves, under the player of all films.
// Arrays and header: attnkit/figures/curves.py.

import { percent } from "./ink.js";
import { chartsFigure } from "./charts.js";
import { filmPage } from "./film.js";

const IN_NATS = "loss", OF_SCORES = "asymmetry"; // all other measures are shares, told in percent

function levelsOf({ header }, measure) {
  if (measure === "accuracy") return [{ value: header.chance, text: "chance" }];
  const known = measure === IN_NATS && header.loss_to_beat !== null;
  return known ? [{ value: header.loss_to_beat, text: header.simple_model }] : [];
}

/** The curves of one measure; `main` is whether it is the one that the sentence is about. */
const curves = (measure, main) => chartsFigure({
  name: main ? measure : `more-${measure}`,
  title: (film) => film.header.curves[measure] ?? "",
  hint: (film) => film.header.hints[measure] ?? "",
  height: 240,
  shown: ({ header }) => measure in header.curves && (header.request.metric === measure) === main,
  charts: (film) => [{
    lines: film.variants.map(({ name, color }, v) => {
      const [values, low, high] = ["", "_low", "_high"].map((end) => () => film.line(`${measure}${end}`, [v]));
      return { name, color, values, low, high };
    }),
    levels: levelsOf(film, measure),
    height: 240,
    low: 0,
    ...(measure === IN_NATS ? {} : { high: 1 }),
    ...(measure === IN_NATS || measure === OF_SCORES ? {} : { text: percent }),
  }],
  table(film) {
    const names = [measure, `${measure}_low`, `${measure}_high`, ...(measure === OF_SCORES ? [] : [OF_SCORES])];
    return {
      columns: ["step", "variant", measure, "low", "high", ...names.slice(3)],
      rows: film.steps.flatMap((step, k) => film.variants.map(({ text }, v) => [step, text, ...names.map((name) => (film.shape(name) ? film.value(name, [v], k) : NaN))])),
    };
  },
});

export default function showReplay(component) {
  return filmPage(component, {
    figures: [curves("accuracy", true), curves("loss", true)],
    more: ["accuracy", "loss", "asymmetry", "mass_on_target", "mass_on_reverse"].map((measure) => curves(measure, false)),
  });
}
