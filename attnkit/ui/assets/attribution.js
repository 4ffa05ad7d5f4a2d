// The Attention page: one score taken apart into parts of two tokens, and one answer into values.
// Arrays and header: attnkit/analysis/inspection/attribution.py. Opened by pressing a cell of a map.

import { diverging, el, limitOf, number, panelGrid, panelTitle, show } from "./ink.js";
import { placeText, short } from "./followed.js";
import { say } from "./panels.js";

const PANEL_LEAST = 300, PART = 58, DARK = 140; // pixels of a panel and of a column of parts; the light of a colour below which text on it is white

/** What is pressed after a press on a row and a column of a map: the same cell once more is none. */
export function pressedCell(film, query_index, key_position) {
  const { picked } = film, again = picked.query_index === query_index && picked.key_position === key_position;
  return { query_index, key_position: again ? undefined : key_position };
}

/** The picker of the token whose score is taken apart, for those who press no cell. */
export function keyPicker(film, parent) {
  const { header } = film, layer = header.layers[header.layer], label = el("label", "ak-not-saved", parent, "Take apart its score with ");
  show(label, film.served); // only Python can compute it
  const select = el("select", "", label);
  select.dataset.focus = "key";
  select.setAttribute("aria-label", "Take apart its score with");
  el("option", "", select, "no token").value = "";
  layer.column_positions.forEach((position, j) => (el("option", "", select, layer.column_titles[j]).value = position));
  select.onchange = () => film.pick({ key_position: select.value === "" ? undefined : Number(select.value) });
  return () => {
    const chosen = String(film.picked.key_position ?? "");
    if (select.value !== chosen) select.value = chosen;
  };
}

/** A table of numbers on coloured cells. Options: rows, columns (texts); last rows of `plain` have no colour. */
function numberTable(parent, { rows, columns, corner = "", plain = 0 }) {
  const table = el("table", "ak-table ak-heads-table ak-parts", el("div", "ak-scroll", parent));
  const caption = el("caption", "", table, ""), head = el("tr", "", el("thead", "", table));
  const named = [corner, ...columns].map((text) => {
    const cell = el("th", "", head, text);
    cell.scope = "col";
    return cell;
  });
  const body = el("tbody", "", table);
  const cells = rows.map((text) => {
    const row = el("tr", "", body);
    el("th", "", row, text).scope = "row";
    return columns.map(() => el("td", "", row, ""));
  });
  return {
    named: named.slice(1),
    update(values, scale, text) {
      say(caption, text);
      cells.forEach((row, i) => row.forEach((cell, j) => {
        const value = values[i * columns.length + j];
        say(cell, number(Math.round(value * 100) / 100)); // as many decimals in every cell
        cell.title = number(value, 6);
        if (i >= rows.length - plain || Number.isNaN(value)) return;
        const [r, g, b] = scale.rgb(value);
        Object.assign(cell.style, { background: scale.css(value), color: 0.3 * r + 0.59 * g + 0.11 * b < DARK ? "#fff" : "#000" });
      }));
    },
  };
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
const why = (film, p, name, k) => film.get(`${p}.why.${name}`, k);

/** The largest amount of all directions over the film so far, for one scale of the colours. */
function limitOfParts(film, names) {
  const cache = (film.own.parts ??= {}), key = names.join();
  if (cache[key]?.version !== film.version || cache[key].key !== film.key) {
    const all = names.filter((name) => film.shape(name)).flatMap((name) => film.steps.map((_, k) => film.get(name, k)));
    cache[key] = { version: film.version, key: film.key, limit: limitOf(...all) };
  }
  return cache[key].limit;
}

/** The tables of one variant's score, in both directions; returns what shows the current frame. */
function buildScores(film, parent, p) {
  const { parts } = film.variants[p].attribution, [query, key] = tokensOf(film);
  const n_maps = film.shape(`${p}.why.score`)[0], size = parts.query.length * parts.key.length;
  const directions = [["score", "parts", "bias", `Query of ${query}, key of ${key}`], ["reverse", "reverse_parts", "reverse_bias", `Query of ${key}, key of ${query}`]];
  const limit = () => limitOfParts(film, [`${p}.why.parts`, `${p}.why.reverse_parts`]);
  return Array.from({ length: n_maps }, (_, map) => {
    const box = el("div", "ak-both", parent);
    return directions.filter(([name]) => film.shape(`${p}.why.${name}`)).map(([name, amounts, bias, text]) => {
      const table = numberTable(el("div", "", box), { rows: parts.query, columns: parts.key, corner: `${query} ↓ ${key} →` });
      return () => {
        const [own] = why(film, p, bias), of = n_maps > 1 ? `, map ${map + 1} of ${n_maps}` : "";
        const added = own ? ` (position bias: ${number(own)})` : "";
        table.update(why(film, p, amounts).subarray(map * size, (map + 1) * size), diverging(limit()), `${text}${of}: score ${number(why(film, p, name)[map])}${added}`);
      };
    });
  }).flat();
}

/** Short names of the query's token and of the key's. */
const tokensOf = ({ header: { attribution } }) => [attribution.short_query, attribution.short_key];

/** What adds to the logits of both answers: [{text, amounts(k) → [given, right]}]. */
function summandsOf(film, p) {
  const { header } = film, layer = header.layers[header.layer], { direct, layers } = film.variants[p].attribution;
  const { tokens, first_keys: firsts } = header.attribution, n = direct.length, found = [];
  const ofAnswers = (pick) => (k) => [0, 1].map((answer) => pick(answer, k));
  const valuesOf = (l, answer, k) => film.part(`${p}.why.values.${l}`, [answer], k);
  for (const l of layers) {
    const [, n_heads, n_keys] = film.shape(`${p}.why.values.${l}`), place = layers.length > 1 ? `${header.layers[l].title}: ` : "";
    const at = (columns) => ofAnswers((answer, k) => {
      const values = valuesOf(l, answer, k);
      return sum(columns.flatMap((j) => Array.from({ length: n_heads }, (_, h) => values[h * n_keys + j])));
    });
    const all = Array.from({ length: n_keys }, (_, j) => j), shown = l === header.layer ? all.filter((j) => layer.column_positions.includes(firsts[l] + j)) : [];
    for (const j of shown) found.push({ text: `${place}value of ${tokens[firsts[l] + j]}`, amounts: at([j]) });
    const others = all.filter((j) => !shown.includes(j));
    if (others.length) found.push({ text: `${place}${shown.length ? "other values" : "all values"}`, amounts: at(others) });
  }
  direct.forEach((name, c) => found.push({
    text: /:|^biases$/.test(name) ? name : `own ${name}`,
    amounts: ofAnswers((answer, k) => film.get(`${p}.why.direct`, k)[answer * n + c]),
  }));
  return found;
}

/** The table of what adds to the logits of the given and of the right answer. */
function buildAnswer(film, parent, p) {
  const summands = summandsOf(film, p), knows = film.header.right >= 0;
  const rows = [...summands.map(({ text }) => text), "sum: the logit"];
  const table = numberTable(parent, { rows, columns: knows ? ["", ""] : [""], corner: "adds to the logit of", plain: 1 });
  const names = [`${p}.why.direct`, ...film.variants[p].attribution.layers.map((l) => `${p}.why.values.${l}`)];
  return () => {
    const classes = why(film, p, "classes"), logits = why(film, p, "logit"), { texts } = film.header;
    const answers = Array.from(classes).slice(0, knows ? 2 : 1);
    ["its answer", "right"].slice(0, answers.length).forEach((what, c) => say(table.named[c], `${short(texts[answers[c]] ?? String(answers[c]))}, ${what}`));
    const amounts = summands.flatMap((one) => one.amounts(film.at).slice(0, answers.length));
    table.update([...amounts, ...Array.from(logits).slice(0, answers.length)], diverging(limitOfParts(film, names)), "What adds to the answer, over all heads");
  };
}

export const attributionFigure = {
  name: "attribution",
  title: (film) => `Why there: the score of ${tokensOf(film).join(" with ")}, taken apart`,
  hint: (film) => [
    placeText(film, film.header) ? `${placeText(film, film.header)[0].toUpperCase()}${placeText(film, film.header).slice(1)}.` : "",
    "A number is what one part of each token add together to the score, through W_Q W_Kᵀ. All of a table add up exactly: to the score, or to the logit. The sizes by which norms divide and the pattern are frozen.",
    "Blue: below 0, red: above.",
    "Press the same cell of a map once more to close this.",
  ].filter(Boolean).join(" "),
  height: 260,
  shown: (film) => Boolean(film.header.attribution),
  build(film, body) {
    const columns = Math.max(...film.variants.map(({ attribution: { parts } }) => parts.key.length));
    const least = Math.min(film.width, Math.max(PANEL_LEAST, PART * (columns + 2)));
    const grid = panelGrid(film, body, film.variants.length, least, 4);
    return film.variants.flatMap((variant, p) => {
      const box = grid.boxes[p];
      panelTitle(box, variant);
      const note = el("p", "ak-panel-note", box, "");
      const updates = film.shape(`${p}.why.score`) ? buildScores(film, el("div", "", box), p) : [];
      if (film.shape(`${p}.why.logit`)) updates.push(buildAnswer(film, el("div", "", box), p));
      return [() => say(note, film.sentencesOf("attribution")[p]), ...updates];
    });
  },
  update: (_film, updates) => updates.forEach((update) => update()),
  finding: (film) => `${attributionFigure.title(film)}, at step ${film.step}. ${film.variants.map(({ name }, p) => `${name}: ${film.sentencesOf("attribution")[p]}`).join(" ")}`,
  table(film) {
    const rows = [];
    film.variants.forEach((variant, p) => {
      const { parts } = variant.attribution;
      for (const [name, bias] of [["parts", "bias"], ["reverse_parts", "reverse_bias"]]) {
        if (!film.shape(`${p}.why.${name}`)) continue;
        const [, n_rows, n_columns] = film.shape(`${p}.why.${name}`);
        why(film, p, name).forEach((amount, c) => rows.push([film.step, variant.name, name === "parts" ? "score" : "score, the other way round", Math.floor(c / (n_rows * n_columns)) + 1, parts.query[Math.floor(c / n_columns) % n_rows], parts.key[c % n_columns], amount]));
        rows.push([film.step, variant.name, name === "parts" ? "score" : "score, the other way round", "", "position bias", "position bias", why(film, p, bias)[0]]);
      }
      if (!film.shape(`${p}.why.logit`)) return;
      for (const { text, amounts } of summandsOf(film, p)) {
        amounts(film.at).forEach((amount, answer) => Number.isNaN(amount) || rows.push([film.step, variant.name, answer ? "logit of the right answer" : "logit of its answer", "", text, "", amount]));
      }
    });
    return { columns: ["step", "variant", "what", "map", "part_of_query", "part_of_key", "amount"], rows };
  },
};
