// Elements and texts. All that users wrote gets into the page as text, never as markup.

/** An element with attributes, listeners (on...) and children; strings become text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(
    (child) => (child instanceof Node ? child : document.createTextNode(visible(child)))));
  return element;
}

/** Text in which control and direction characters show as code points: they could make a name look like another. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g,
    (odd) => `\\u${odd.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export const link = (path, text) => h("a", { href: `#/${path}` }, text);

/** A table of rows, on a phone a card for each; a cell is text, an element, or null. `numbers`: the columns that are right-aligned. */
export function table(columns, rows, numbers = [], empty = "nothing yet") {
  if (!rows.length) return h("p", { class: "faint" }, empty);
  const css = (index, wraps) => (numbers.includes(index) ? "number" : wraps ? "wrap" : null);
  return h("div", { class: "scroll cards" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((name, i) => h("th", { class: css(i), scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map(
      (cell, i) => h("td", { class: css(i, typeof cell === "string" && cell.length > 40), "data-name": columns[i] || null }, cell ?? "")))))));
}

export function facts(pairs) {
  return h("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function figure(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value)) return String(value).replace(/\B(?=(\d{3})+$)/g, ",");  // toLocaleString takes long to load
  return Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(digits));
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  const s = Math.abs(seconds);
  if (s < 90) return `${figure(seconds, 2)} s`;
  if (s < 5400) return `${Math.round(seconds / 60)} min`;
  return s < 172800 ? `${figure(seconds / 3600, 2)} h` : `${figure(seconds / 86400, 3)} days`;
}

export function clock(time) {
  if (time === null || time === undefined) return "-";
  const moment = new Date(time * 1000), today = new Date().toDateString() === moment.toDateString();
  return today ? moment.toLocaleTimeString() : moment.toLocaleString();
}
