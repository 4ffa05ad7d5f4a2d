// Which head is shown, in words.

import { firstOf } from "./followed.js";

/** The layer and the head that were asked for, where there is a choice. */
function whichHead(film) {
  const { header } = film, { places = [], variants, request } = header; // before the first frames come there are no places
  const layer = places.length > 1 ? places[request.layer] : "";
  const head = Math.max(0, ...variants.map((v) => v.n_heads)) > 1 ? `head ${request.head + firstOf(film)}` : "";
  return [layer, head].filter(Boolean).join(", ");
}

/** A figure's title that ends with the head. */
export const titled = (words) => (film) => [words, whichHead(film)].filter(Boolean).join(" · ");
