// A training as a film: the board of the Lab at every evaluation, under the player of all films.
// Header: attnkit/figures/board.py.

import { filmPage } from "./film.js";
import showBoard from "./board.js";

let leave; // ends what the board before has begun

/** The value that differs from `base` by `changes`. */
function changed(base, changes) {
  if (Array.isArray(changes)) return changes[0];
  const value = Array.isArray(base) ? [...base] : { ...base };
  for (const [key, change] of Object.entries(changes)) value[key] = changed(base[key], change);
  return value;
}

const boardOf = ({ header, at }) => changed(header.board, header.changes[at]);

const board = {
  name: "board",
  title: "All variants",
  height: 640,
  build(film, body) {
    leave?.();
    const drawn = { body };
    board.update(film, drawn); // now, so that the film knows whether the board can be focused
    return drawn;
  },
  update(film, { body }) {
    leave = showBoard({ data: boardOf(film), parentElement: body });
  },
  finding: (film) => boardOf(film).alt,
  table: (film) => ({
    columns: ["step", "variant", "accuracy"],
    rows: film.steps.flatMap((step, k) => film.variants.map(({ text }, v) => [step, text, film.value("accuracy", [v], k)])),
  }),
};

export default function showTraining(component) {
  return filmPage(component, { figures: [board] });
}
