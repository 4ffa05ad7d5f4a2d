// A trained model on a sentence: the figures of the toys, with the model's own scores and attention.
// Header and arrays: attnkit/figures/sentence.py.

import { headGrid, mapsFigure } from "./attention_maps.js";
import { scoreMaps } from "./direction.js";
import { filmPage } from "./film.js";
import { parts, stages } from "./score_parts.js";

export default function showSentence(component) {
  return filmPage(component, { figures: [mapsFigure, headGrid, scoreMaps, parts, stages] });
}
