// What every page has: the meanings of its terms, one entry in the browser's history, texts that
// stay right when the browser translates them, numbers as they are meant, and a sidebar of the wanted
// width.
// data: {hints: [[spellings with "; " between them, meaning]]}

import { keepOneEntry } from "./history.js";
import MESSAGES from "./messages.json" with { type: "json" };
import { readNumbersOfAllCountries } from "./numbers.js";
import { settleSidebar } from "./sidebar.js";
import { showTerms } from "./terms.js";
import { keepTranslationsCurrent } from "./translation.js";

export default function drawPage(given) {
  document.documentElement.lang = MESSAGES.language;
  keepOneEntry();
  keepTranslationsCurrent();
  readNumbersOfAllCountries();
  settleSidebar();
  return showTerms(given);
}
