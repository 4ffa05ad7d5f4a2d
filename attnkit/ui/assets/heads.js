// Which head is shown, in words.

/** The layer and the head that were asked for, where there is a choice. */
function whichHead({ header }) {
  const { places = [], variants, request } = header; // before the first frames come there are no places
  const layer = places.length > 1 ? places[request.layer] : "";
  const head = Math.max(0, ...variants.map((v) => v.n_heads)) > 1 ? `head ${request.head + 1}` : "";
  return [layer, head].filter(Boolean).join(", ");
}

/** A figure's title that ends with the head. */
export const titled = (words) => (film) => [words, whichHead(film)].filter(Boolean).join(" · ");
