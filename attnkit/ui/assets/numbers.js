// Numbers as people of other countries write them. A browser drops a decimal comma, so that "0,1"
// becomes 1, and reads "1.000" as 1. Here a comma is a decimal point, and in a whole number three
// digits after a point are thousands.

const THOUSANDS = /^\d{1,3}(?:[.,'\u2019\s]\d{3})+$/u;
const VALUE = Object.getOwnPropertyDescriptor(globalThis.HTMLInputElement?.prototype ?? {}, "value");

/** Watch all number fields of the page, once. */
export function readNumbersOfAllCountries() {
  if (window.attnkitNumbers) return;
  window.attnkitNumbers = true;
  document.addEventListener("beforeinput", insertAsMeant, { capture: true });
  document.addEventListener("input", joinThousands, { capture: true });
}

function insertAsMeant(event) {
  const { target: field, data } = event;
  if (field.type !== "number" || !data) return;
  const meant = meantBy(data, isWhole(field));
  if (meant === data) return;
  event.preventDefault();
  if (meant) document.execCommand("insertText", false, meant);
}

function joinThousands({ target: field }) {
  if (field.type !== "number" || !isWhole(field)) return;
  const meant = meantBy(field.value, true);
  if (meant !== field.value) VALUE.set.call(field, meant); // React's own setter would hide the change
}

const isWhole = (field) => Number(field.step) % 1 === 0;

/** What somebody means who types or pastes a text: the last separator is that of decimals. */
export function meantBy(text, isWhole) {
  if (isWhole && THOUSANDS.test(text)) return text.replace(/\D/gu, "");
  const parts = text.split(/[.,]/u).map((part) => part.replace(/['\u2019\s]/gu, ""));
  const last = parts.pop();
  return parts.length ? `${parts.join("")}.${last}` : last;
}
