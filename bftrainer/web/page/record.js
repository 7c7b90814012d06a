// A replay's record in the same page: what its nodes and trainers did, at any moment of it.
import { facts, figure, h, span, table } from "./dom.js";
import { colour, context, lines, theme } from "./draw.js";
import { layout, racks } from "./nodes.js";

const FRAME_MS = 100, STEPS = 1000;

/** Who had each node at a moment: undefined if it was not in the pool, 0 if no trainer had it. */
export function holders(record, at) {
  const { node, trainer, begin, end } = record.stays, found = new Map();
  for (let i = 0; i < node.length; i++) {
    if (begin[i] > at || end[i] <= at) continue;
    const name = record.nodes[node[i]];
    if (trainer[i] || !found.has(name)) found.set(name, trainer[i]);
  }
  return found;
}

export function recorded(record, main) {
  const length = record.end - record.begin;
  const canvas = h("canvas", { role: "img", "aria-label": "Map of nodes" }), course = h("canvas", { role: "img", "aria-label": "Nodes in the pool and in use" });
  const slider = h("input", { type: "range", min: "0", max: String(STEPS), value: "0", "aria-label": "Moment of the replay" });
  const play = h("button", { type: "button" }, "Play"), said = h("p", { "aria-live": "polite" });
  const trainers = new Map(record.trainers.map((t) => [t.id, t]));
  let timer = null, drawn = null;
  main.replaceChildren(h("h1", {}, `Replay ${record.name}`), facts(Object.entries(record.figures).filter(([, value]) => typeof value !== "object").slice(0, 20).map(([name, value]) => [name, typeof value === "number" ? figure(value) : value])),
    h("h2", {}, "Nodes"), h("div", { class: "bar" }, play, slider), said, canvas,
    h("h2", {}, "Over time"), h("figure", {}, course, h("figcaption", {}, "Nodes in the pool (faint) and in use (strong).")),
    h("h2", {}, "Trainers"), table(["id", "name", "model", "submitted", "started", "ended", "samples", "node-hours"], record.trainers.slice(0, 500).map((t) =>
      [figure(t.id), t.name, t.model, span(t.submitted), span(t.started), t.ended === null ? "-" : `${span(t.ended)}${t.completed ? "" : " (not done)"}`, figure(t.samples), figure(t.node_s / 3600, 3)]), [0, 6, 7]));

  function show() {
    const at = (Number(slider.value) / STEPS) * length, now = holders(record, at), { pen, places, cell } = drawn;
    let held = 0;
    for (const [name, x, y] of places) {
      const id = now.get(name);
      held += id ? 1 : 0;
      pen.fillStyle = id === undefined ? theme("busy") : id ? colour(id) : theme("free");
      pen.fillRect(x, y, cell - 1, cell - 1);
    }
    said.textContent = `After ${span(at)}: ${figure(now.size)} nodes idle, ${figure(held)} of them train.`;
    said.dataset.held = held;
  }

  function whole() {
    const found = layout(racks(record.nodes), Math.max(200, main.clientWidth - 32), 420);
    drawn = { ...found, pen: context(canvas, found.height).pen };
    drawn.pen.fillStyle = theme("faint");
    for (const [text, x, y] of found.labels) drawn.pen.fillText(text.slice(0, 24), x, y + 12);
    show();
    const { time, pool, used } = record.moments, every = Math.max(1, Math.ceil(time.length / 2000));
    const points = (values) => values.map((value, i) => [time[i], value]).filter((_, i) => i % every === 0);
    lines(course, [{ points: points(pool), colour: theme("faint") }, { points: points(used), colour: theme("link") }], { sayX: span, sayY: figure });
  }

  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const found = drawn.places.find(([, left, top]) => x >= left && x < left + drawn.cell && y >= top && y < top + drawn.cell);
    if (!found) return;
    const id = holders(record, (Number(slider.value) / STEPS) * length).get(found[0]);
    said.textContent = `${found[0]}: ${id === undefined ? "the main scheduler's" : id ? `trains ${trainers.get(id)?.name ?? id}` : "idle, no trainer needs it"}`;
  });
  slider.addEventListener("input", show);
  play.addEventListener("click", () => {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
    play.textContent = "Stop";
    timer = setInterval(() => { slider.value = String((Number(slider.value) + 2) % STEPS); show(); }, FRAME_MS);
  });
  return { update: whole };
}
