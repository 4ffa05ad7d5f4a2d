// The Attention page: one lookup, seen at any moment of training, side by side between variants.
// Arrays and header: attnkit/analysis/inspection/lookup.py. The stages of the lookup stand in lookup.js.

import { followed, lookupFinding, placeText } from "./followed.js";
import { el } from "./ink.js";
import { headGrid, mapsFigure } from "./attention_maps.js";
import { filmPage } from "./film.js";
import { lookupFigure } from "./lookup.js";
import { attributionFigure } from "./attribution.js";
import { differenceFigure, massFigure } from "./contrast.js";
import { say } from "./panels.js";

const findingFigure = {
  name: "finding",
  title: (film) => `What ${followed(film)} attends to`,
  hint: (film) => [
    film.header.right >= 0 ? `The right answer is ${film.header.right_text}.` : "",
    `Percentages are of this one ${film.header.is_asked ? "question" : "token"}, with seed ${film.header.seed}.`,
    placeText(film, film.header) ? `Of ${placeText(film, film.header)}.` : "",
    film.header.thinned ? "Some moments are left out, so that the film stays small." : "",
  ].filter(Boolean).join(" "),
  height: 100,
  build(film, body) {
    const list = el("ul", "ak-findings", body);
    return film.variants.map((variant) => {
      const item = el("li", "", list);
      el("i", "", item, "■").style.color = variant.color;
      el("b", "", item, variant.name);
      return el("span", "", item, "");
    });
  },
  update: (film, lines) => lines.forEach((line, p) => say(line, film.sentencesOf("finding")[p])),
  finding: lookupFinding,
  table: (film) => ({
    columns: ["step", "variant", "token", "weight_on_right", "weight_on_reversed", "answer", "is_right", "probability", "asymmetry"],
    rows: film.variants.map((variant, p) => {
      const { header } = film, [weights, answers, right, top, total] = ["weights", "answers", "right", "top", "total"].map((name) => film.shape(`${p}.${name}`) && film.get(`${p}.${name}`));
      const answer = top ? [header.texts[answers[header.row]], right[header.row] === 255 ? "" : right[header.row] === 1, Math.exp(top[0] - total[0])] : ["", "", ""];
      return [film.step, variant.name, followed(film), weights?.[header.target], weights?.[header.reverse], ...answer, film.value("asymmetry", [p])];
    }),
  }),
};

export default function showAttention(component) {
  return filmPage(component, {
    figures: [findingFigure, mapsFigure, attributionFigure, headGrid, lookupFigure],
    more: [differenceFigure, massFigure],
  });
}
