// Texts in the reader's language, by the rules of attnkit/foundation/language.py. The file of messages
// says that the language is English; bundle.py puts the translations for a script in its place.

import MESSAGES from "./messages.json" with { type: "json" };

const NARROW_SPACE = "\u202f";
const GROUPED_FROM = { es: 10_000 }; // smallest number whose digits are grouped, where it is not 1,000

/** A text in the reader's language. The message is a literal, with names of values in braces. */
export const tr = (message, values) => filledIn(MESSAGES.texts[message] ?? message, values);

/** A text about a number of things; `{n}` is the number. */
export function trN(one, several, n, values) {
  const forms = MESSAGES.texts[one] ?? [one, several];
  return filledIn(forms[n === 1 ? 0 : 1], { n, ...values }); // as English, German and Spanish have it
}

function filledIn(text, values) {
  if (!values) return text;
  return text.replace(/\{(\w+)(:,)?\}/g, (_, name, grouped) => (grouped ? inGroups(values[name]) : values[name]));
}

const inGroups = (n) => inLanguage(n.toLocaleString("en"), n);

/** The English text of a number as the reader's language groups it and writes percent. */
export function inLanguage(text, n) {
  if (MESSAGES.language === "en") return text;
  const space = Math.abs(n) >= (GROUPED_FROM[MESSAGES.language] ?? 1000) ? NARROW_SPACE : "";
  return text.replaceAll(",", space).replaceAll("%", `${NARROW_SPACE}%`);
}
