// Parts of the sentences that pages conclude with: names of variants, and shares in percent.

import { percent } from "./ink.js";

const MOST_NAMED = 4;

/** Names in a list that can be read aloud; of many, only how many they are. */
export function listed(names) {
  if (names.length > MOST_NAMED) return `${names.length} variants`;
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0] ?? "";
}

/** The subject of a sentence about all variants of a page. */
export const everyone = (names) => (names.length > 2 ? `All ${names.length} variants` : names.length > 1 ? "Both variants" : names[0]);

/** The form of a verb that agrees with so many subjects. */
export const verb = (subjects, one, several) => (subjects.length === 1 ? one : several);

/** Shares in percent: one number if all are alike, else the lowest and the highest. */
export function percents(shares) {
  const known = shares.filter(Number.isFinite).sort((a, b) => a - b);
  if (!known.length) return "";
  const [low, high] = [percent(known[0]), percent(known.at(-1))];
  return low === high ? low : `${low} to ${high}`;
}
