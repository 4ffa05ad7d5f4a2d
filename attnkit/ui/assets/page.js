// What every page has: the meanings of its terms, one entry in the browser's history, and texts
// that stay right when the browser translates them.
// data: {hints: [[spelling, meaning]], the longest spelling first}

import { keepOneEntry } from "./history.js";
import { showTerms } from "./terms.js";
import { keepTranslationsCurrent } from "./translation.js";

export default function drawPage(given) {
  keepOneEntry();
  keepTranslationsCurrent();
  return showTerms(given);
}
