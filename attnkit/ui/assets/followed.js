// The followed token on the Attention page, and the maps of the chosen layer and head.

/** Which map is shown: one that is pointed at for as long as it is, else the chosen one. */
export function shownPlace(film) {
  return film.own.preview ?? chosenPlace(film);
}

/** The chosen layer and head; a head of null is the mean of all. */
export function chosenPlace(film) {
  const { layer, head } = film.picked;
  return { layer: Math.min(layer, film.header.layers.length - 1), head: film.own.mean ? null : head };
}

export const placeText = (film, { layer, head }) => {
  const place = film.header.layers.length > 1 ? `${film.header.layers[layer].title}, ` : "";
  if (mostHeads(film) === 1) return place.replace(", ", "");
  return place + (head === null ? "mean of all heads" : `head ${head + firstOf(film)}`);
};

/** The number of the first layer and of the first head. */
export const firstOf = ({ header }) => header.counted_from ?? 1;

export const mostHeads = (film) => Math.max(...film.variants.map((variant) => variant.n_heads));
export const columnsOf = ({ column_positions: known, rest }) => (rest ? [...known, undefined] : known);

/** Why a variant has no such map; empty if it has one. */
export function lackingOf(variant, { head }) {
  if (variant.refusal) return variant.refusal;
  return head === null || head < variant.n_heads ? "" : variant.lacking;
}

/** A variant's map at a frame, (rows × columns): exact where it was asked for, else to 1/255. */
export function mapOf(film, p, { layer, head }, k = film.at) {
  const { header } = film;
  if (layer === header.layer && head === header.head && film.shape(`${p}.map`)) return film.get(`${p}.map`, k);
  const name = `${p}.grid.${layer}`, [n, rows, columns] = film.shape(name);
  const values = new Float32Array(rows * columns);
  for (const h of head === null ? Array(n).keys() : [head]) {
    const own = film.part(name, [h], k), share = 255 * (head === null ? n : 1);
    for (let c = 0; c < values.length; c++) values[c] += own[c] / share;
  }
  return values;
}

/** The row of the followed token in the chosen layer; −1 if it is on another page of rows. */
export const followedRow = (film) => (film.header.askable[film.picked.query_index] ?? { row: film.header.row }).row;

/** What each variant does with the followed token, at the shown step. */
export const lookupFinding = (film) => `${followed(film)} at step ${film.step}. ${film.variants.map(({ name }, p) => `${name}: ${film.sentencesOf("finding")[p]}`).join(" ")}`;

export const followed = (film) => film.header.askable[film.header.query_index]?.label ?? "";
/** Whether what was picked is on its way. */
export const isLate = (film) => film.served && ["layer", "head", "query_index", "key_position"].some((name) => (film.picked[name] ?? null) !== film.header[name]);

const LONGEST_ANSWER = 9;
export const short = (text) => (text.length > LONGEST_ANSWER ? `${text.slice(0, LONGEST_ANSWER - 1)}…` : text);
