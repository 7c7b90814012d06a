// Trainers in a table of any length, of which only the visible rows exist; and those that wait, with why.
import { figure, h, link, span, table, visible } from "./dom.js";
import { spark } from "./draw.js";

const BEYOND = 8, QUEUED = 100;
/** A row's height as page.css has it: on a phone, why a trainer waits or has failed is below its name. */
const NARROW = matchMedia("(max-width: 40em)"), rowHeight = () => (NARROW.matches ? 72 : 30);

const done = (t) => (t.work ? t.samples / t.work : null);
export const likely = (t) => t.ends_in_s?.likely ?? null;

/** The status as what comes first: trainers with nodes, those that wait, those that failed, other ended ones. */
const rank = (t) => `${t.ended_at !== null ? 2 : t.nodes.length ? 0 : 1}${t.status === "failed" ? 0 : 1}${t.status}`;
const STATUS = 3;

/** Why it waits or has failed, or what its user should know while it runs. */
const why = (t) => (t.status === "completed" ? "" : t.reason || t.note || "");

/** Name, what it sorts by, what it shows, whether that is a number, and whether a phone has no room for it. */
const COLUMNS = [
  ["id", (t) => t.id, (t) => figure(t.id), true, true],
  ["name", (t) => t.name, (t) => link(`trainer/${t.id}`, t.name)],
  ["user", (t) => t.user, (t) => t.user, false, true],
  ["status", (t) => rank(t), (t) => t.status],
  ["nodes", (t) => t.nodes.length, (t) => (t.nodes.length ? `${t.members.length} of ${t.nodes.length}` : "-"), true],
  ["samples/s", (t) => t.rate ?? -1, (t) => figure(t.rate), true, true],
  ["done", (t) => done(t) ?? -1, (t) => (done(t) === null ? "-" : `${(100 * done(t)).toFixed(1)} %`), true, true],
  ["left", (t) => likely(t) ?? Infinity, (t) => span(likely(t)), true],
  ["why", why, (t) => h("span", { title: visible(why(t)) }, why(t))],
];

/** The trainers whose name, user, status or number has the words, in the order of a column. */
export function chosen(rows, words, column, down) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [...rows].filter((t) => wanted.every((word) =>
    `${t.id} ${t.name} ${t.user} ${t.status}`.toLowerCase().includes(word)));
  const key = COLUMNS[column][1], sign = down ? -1 : 1;
  return found.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    return sign * (x < y ? -1 : x > y ? 1 : 0) || b.id - a.id;
  });
}

export function trainers({ place, feed }) {
  const search = h("input", { type: "search", placeholder: "name, user, status", "aria-label": "Search trainers" });
  const counted = h("span", { class: "faint" });
  const css = ([name, , , number, less]) => [number && "number", less && "phoneless", (name === "name" || name === "why") && name].filter(Boolean).join(" ") || null;
  const head = COLUMNS.map((one, i) => h("th", { scope: "col", class: css(one) },
    h("button", { type: "button", onclick: () => sort(i) }, one[0])));
  const body = h("tbody");
  const scroll = h("div", { class: "scroll tall trainers", tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, head, h("th", { scope: "col", class: "phoneless" }, "nodes, speed"))), body));
  let column = STATUS, down = false, found = [];
  place.append(h("h1", {}, "Trainers"), h("div", { class: "bar" }, search, counted), scroll);

  function sort(which) {
    [column, down] = which === column ? [column, !down] : [which, false];
    choose();
  }

  function choose() {
    found = chosen(feed.trainers.values(), search.value, column, down);
    head.forEach((cell, i) => cell.setAttribute("aria-sort", i === column ? (down ? "descending" : "ascending") : "none"));
    counted.textContent = `${figure(found.length)} of ${figure(feed.trainers.size)}`;
    rows();
  }

  function rows() {
    const first = Math.max(0, Math.floor(scroll.scrollTop / rowHeight()) - BEYOND);
    const last = Math.min(found.length, first + Math.ceil((scroll.clientHeight || 600) / rowHeight()) + 2 * BEYOND);
    const space = (count) => {
      const cell = h("td", { colspan: String(COLUMNS.length + 1) });
      cell.style.height = `${count * rowHeight()}px`;
      return h("tr", { class: "spacer", "aria-hidden": "true" }, cell);
    };
    const focus = body.contains(document.activeElement) ? document.activeElement.hash : null;
    body.replaceChildren(...(first ? [space(first)] : []), ...found.slice(first, last).map(row),
      ...(last < found.length ? [space(found.length - last)] : []));
    for (const canvas of body.querySelectorAll("canvas")) draw(canvas);
    if (focus) [...body.querySelectorAll("a")].find((a) => a.hash === focus)?.focus({ preventScroll: true });
  }

  function row(t) {
    const course = feed.courses.get(t.id);
    const pictures = course?.length > 1 ? [1, 2].map((which) => h("canvas", { class: "spark", "data-id": t.id, "data-which": which, "aria-hidden": "true" })) : "";
    return h("tr", {}, COLUMNS.map((one) => h("td", { class: css(one) }, one[2](t))),
      h("td", { class: "phoneless" }, pictures));
  }

  function draw(canvas) {
    const course = feed.courses.get(Number(canvas.dataset.id)) ?? [];
    spark(canvas, course.map((point) => point[Number(canvas.dataset.which)]));
  }

  search.addEventListener("input", choose);
  scroll.addEventListener("scroll", () => requestAnimationFrame(rows));
  return { update(changes) { if (changes.all || changes.trainers.length) choose(); } };
}

export function queue({ place, feed }) {
  place.append(h("h1", {}, "Queue"));
  const said = h("p"), list = h("div");
  let shown = "";
  place.append(said, list);
  return {
    update(changes) {
      if (!changes.all && !changes.trainers.length) return;
      const waiting = [...feed.trainers.values()].filter((t) => t.status === "waiting")
        .sort((a, b) => (b.priority ?? 1) - (a.priority ?? 1) || a.id - b.id);
      said.textContent = `${figure(waiting.length)} trainer${waiting.length === 1 ? " waits" : "s wait"}, of those that you may see; a higher priority comes first, then who came first.`
        + (waiting.length > QUEUED ? ` The first ${QUEUED} are shown.` : "");
      const first = waiting.slice(0, QUEUED), rows = first.map((t) => [t.id, t.priority, t.reason, t.remedy]);
      if (!changes.all && JSON.stringify(rows) === shown) return;
      shown = JSON.stringify(rows);
      list.replaceChildren(table(["place", "trainer", "user", "priority", "waits for", "because", "it runs when", "ends in"],
        first.map((t, i) => [figure(i + 1), link(`trainer/${t.id}`, t.name), t.user, figure(t.priority ?? 1),
          span(feed.at - t.submitted_at), t.reason || "-", t.remedy || "-", span(likely(t))]), [0, 3], "no trainer waits"));
    },
  };
}
