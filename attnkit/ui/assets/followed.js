// The followed token on the Attention page: its map, where it looks, what each variant answers, and
// the sentence about all of them.

import { lacks } from "./heads.js";
import { percent } from "./ink.js";
import { listed, percents, verb } from "./sentences.js";

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
  return place + (head === null ? "mean of all heads" : `head ${head + 1}`);
};

export const mostHeads = (film) => Math.max(...film.variants.map((variant) => variant.n_heads));
export const columnsOf = ({ column_positions: known, rest }) => (rest ? [...known, undefined] : known);

/** Why a variant has no such map; empty if it has one. */
export function lackingOf(variant, { head }) {
  if (variant.refusal) return variant.refusal;
  if (head === null || head < variant.n_heads) return "";
  return lacks(variant);
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

/** What a variant answers at the followed token: {text, right, probability}. */
export function answerOf(film, p) {
  const { header } = film;
  if (!film.shape(`${p}.logits`)) return null;
  const answer = film.get(`${p}.answers`)[header.row];
  const probability = Math.exp(film.get(`${p}.top`)[0] - film.get(`${p}.total`)[0]);
  return { text: header.texts[answer] ?? String(answer), right: header.right < 0 ? null : answer === header.right, probability };
}

/** Where the followed token looks: weights on the right and the mirrored entry, and the largest. */
export function looksOf(film, p) {
  const { header } = film, weights = film.shape(`${p}.weights`) && film.get(`${p}.weights`);
  if (!weights) return null;
  const layer = header.layers[header.layer];
  const most = weights.reduce((best, weight, j) => (weight > weights[best] ? j : best), 0);
  const at = (column) => (column >= 0 ? weights[column] : NaN);
  return { right: at(header.target), reverse: at(header.reverse), most: weights[most], entry: layer.column_titles[most] };
}

/** What one variant does with the followed token, in plain words. */
export function findingOf(film, p) {
  const variant = film.variants[p], looks = looksOf(film, p), answer = answerOf(film, p);
  if (!looks) return variant.refusal || variant.lacking || "nothing is known of it";
  let text = `its largest weight, ${percent(looks.most)}, is on ${looks.entry}`;
  if (!Number.isNaN(looks.right)) {
    text = `${percent(looks.right)} of its attention is on the right entry`;
    if (!Number.isNaN(looks.reverse)) text += `, ${percent(looks.reverse)} on the one that points back`;
  }
  if (!answer) return `${text}.`;
  const mark = answer.right === null ? "" : answer.right ? " ✓" : " ✗";
  return `${text}; it answers ${answer.text}${mark} with probability ${percent(answer.probability)}${answer.right === false ? holdersOf(film, p, answer.text) : ""}.`;
}

/** Which entries hold a wrong answer, and how much weight is on them: why it was given. */
function holdersOf(film, p, text) {
  const { columns, column_titles: titles } = film.header.layers[film.header.layer];
  const held = titles.flatMap((title, j) => (title.endsWith(` ${text}`) ? [j] : []));
  if (!held.length) return "";
  const weights = film.get(`${p}.weights`), sum = held.reduce((all, j) => all + weights[j], 0);
  return `: ${text} is held by ${held.map((j) => columns[j]).join(" and ")}, ${percent(sum)} of its attention`;
}

const HALF = 0.5, PART = 0.2;

/** Where a variant attends: to the right entry, to two entries, or to others; else where most. */
function placeOfAttention({ right, reverse }) {
  if (Number.isNaN(right)) return "most";
  if (right >= PART && reverse >= PART && right + reverse >= HALF) return "two";
  return right >= HALF ? "right" : "others";
}

const namesOf = (group) => listed(group.map(({ name }) => name));

/** Which variants answer right, and which wrong: one clause for each. */
const verdictsOf = (found) => grouped(found, ({ right }) => right).map((group) => `${namesOf(group)} ${verb(group, "answers", "answer")} ${group[0].right ? "right" : "wrong"}`);

/** The predicate of a sentence about variants with the same behaviour. */
function predicateOf(group) {
  const [{ attends, right, answer, looks: { entry } }] = group, s = (one) => verb(group, `${one}s`, one);
  const shares = (name) => percents(group.map(({ looks }) => looks[name]));
  const predicate = {
    right: () => `${s("attend")} to the right entry (${shares("right")})`,
    two: () => `${s("divide")} ${verb(group, "its", "their")} attention (${shares("right")} on the right entry)`,
    others: () => `${s("attend")} mostly to other entries (${shares("right")} on the right one)`,
    most: () => `${s("attend")} most to ${entry} (${shares("most")})`,
  }[attends]();
  if (answer === undefined) return predicate;
  if (right === null) return `${predicate} and ${s("answer")} ${answer}`;
  if (group.some((one) => one.right !== right)) return `${predicate}; of these, ${verdictsOf(group).join(" and ")}`;
  const expected = attends === "most" || (attends === "right") === right;
  return `${predicate} ${expected ? "and" : "but"} ${s("answer")} ${right ? "right" : "wrong"}`;
}

/** Entries in groups of one key, in the order in which the keys first come. */
function grouped(entries, keyOf) {
  const groups = new Map();
  for (const entry of entries) {
    const key = JSON.stringify(keyOf(entry));
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return [...groups.values()];
}

const MOST_CLAUSES = 2, MOST_WITHOUT_VERDICTS = 3;

/** What the variants do with the followed token; of many different things, only what they answer. */
function clausesOf(found) {
  const groups = grouped(found, ({ attends, looks, right, answer }) => [attends, attends === "most" && looks.entry, right === null && answer]);
  if (groups.length <= (typeof found[0].right === "boolean" ? MOST_CLAUSES : MOST_WITHOUT_VERDICTS)) return groups.map((group) => `${namesOf(group)} ${predicateOf(group)}`);
  if (found[0].answer === undefined) return ["the variants attend most to different entries"];
  if (found[0].right === null) return ["the variants attend and answer differently"];
  return verdictsOf(found);
}

/** The sentence to take away at the shown step: what the variants do with the followed token. */
export function concludeLookup(film) {
  const found = film.variants.flatMap(({ name }, p) => {
    const looks = looksOf(film, p), answer = answerOf(film, p) ?? {};
    return looks ? [{ name, looks, attends: placeOfAttention(looks), right: answer.right, answer: answer.text }] : [];
  });
  if (!found.length) return "No variant here has such a map.";
  const { seed, is_asked: asked } = film.header, seedText = seed === undefined ? "" : `seed ${seed}`;
  const where = [seedText, placeText(film, film.header)].filter(Boolean).join(", ");
  const subject = `${film.step === 0 ? "Before training, for" : "For"} the ${asked ? "one question" : "token"} “${followed(film)}”`;
  return `${subject}${where && ` (${where})`}: ${clausesOf(found).join("; ")}.`;
}

export const followed = (film) => film.header.askable[film.header.query_index]?.label ?? "";
/** Whether what was picked is on its way. */
export const isLate = (film) => film.served && ["layer", "head", "query_index"].some((name) => film.picked[name] !== film.header[name]);

const LONGEST_ANSWER = 9;
export const short = (text) => (text.length > LONGEST_ANSWER ? `${text.slice(0, LONGEST_ANSWER - 1)}…` : text);
