// Tables in figures, with a row for each variant. Nodes are made once; updates change texts only.

import { el } from "./ink.js";
import { say, setTextForm } from "./panels.js";

/** The heading of a variant's row: its colour and its name. */
export function variantHeading(row, { name, text, color }) {
  const node = el("th", "", row);
  Object.assign(node, { scope: "row", title: text ?? name });
  const mark = el("i", "", node, "■");
  mark.style.color = color;
  mark.setAttribute("aria-hidden", "true");
  setTextForm(el("span", "", node), name);
}

/** A table of one row per variant under column headings; returns its cells, by variant and column. */
export function variantTable(film, parent, columns) {
  const table = el("table", "ak-table", el("div", "ak-scroll", parent));
  const top = el("tr", "", el("thead", "", table));
  for (const text of ["variant", ...columns]) el("th", "", top, text).scope = "col";
  const body = el("tbody", "", table);
  return film.variants.map((variant) => {
    const row = el("tr", "", body);
    variantHeading(row, variant);
    return columns.map(() => el("td", "", row, ""));
  });
}

/** A figure that is a table of the texts of its name that Python sends: a row per variant, a cell per column. */
export const tableFigure = ({ columns, ...figure }) => ({
  shape: columns,
  build: (film, body) => variantTable(film, body, columns(film)),
  update: (film, cells) => film.sentencesOf(figure.name).forEach((row, p) => row.forEach((text, c) => say(cells[p][c], text))),
  finding: (film) => film.sentencesOf(figure.name).map((row, p) => `${film.variants[p].name}: ${columns(film).map((heading, c) => `${heading} ${row[c]}`).join(", ")}.`).join(" "),
  ...figure,
});
