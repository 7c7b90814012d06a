// The map: a cell per node or GPU, coloured by whose it is, now or at a moment of the last hours.
import { clock, figure, h, link } from "./dom.js";
import { attributed } from "./decisions.js";
import { get } from "./feed.js";
import { colour, context, theme } from "./draw.js";
import { because, nodeTables, pooled, until } from "./node_tables.js";

const LABEL = 16, GAP = 10, LARGE = 72, SHORT = 200, WITH_NAMES = 48, LINE = 16, PLAY_MS = 250, EVENTS = 2000;
/** A name so that names sort by their numbers; the browser's own collation takes long to load. */
const sortable = (name) => name.replace(/\d+/g, (digits) => digits.padStart(9, "0"));

/** What a node without a trainer is: free in the pool, unused, or the main scheduler's. */
const kind = (row) => (pooled(row) ? "free" : row.state === "idle" || row.state === "unused" ? "unused" : "busy");

/** Nodes by rack: what of a name comes before its last number. GPUs of a node stay together. */
export function racks(names) {
  const found = new Map();
  const keyed = [...names].map((name) => [sortable(name), name]).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  for (const [, name] of keyed) {
    const rack = name.replace(/:\d+$/, "").replace(/\d+[^\d]*$/, "");
    if (!found.has(rack)) found.set(rack, []);
    found.get(rack).push(name);
  }
  return found;
}

/** How many GPUs the first node of a rack has, where cells are GPUs; else 1. */
function perNode(names) {
  const own = names[0].replace(/:\d+$/, ":");
  return own === names[0] ? 1 : names.filter((name) => name.startsWith(own)).length;
}

/** Where each cell lies in so much width: the largest cells with which all fits into `room` pixels of height; a few nodes have large ones. */
export function layout(groups, width, room) {
  const each = new Map([...groups].map(([rack, names]) => [rack, perNode(names)]));
  for (let cell = LARGE; ; cell -= cell > 26 ? 23 : cell > 10 ? 2 : 1) {
    const labels = [], columns = Math.max(1, Math.floor(width / cell));
    let top = 0, left = 0, deep = 0;
    for (const [rack, names] of groups) {
      const whole = each.get(rack), wanted = Math.max(Math.ceil(60 / cell), Math.ceil(Math.sqrt(names.length * 2)));
      const across = Math.min(columns, Math.ceil(wanted / whole) * whole);  // a node's GPUs stay in one line
      const wide = across * cell;
      if (left && left + wide > width) { top += deep + GAP; left = deep = 0; }
      labels.push([rack || "nodes", left, top, across, names]);
      deep = Math.max(deep, LABEL + Math.ceil(names.length / across) * cell);
      left += wide + GAP;
    }
    if (top + deep > (cell > 26 ? Math.min(room, SHORT) : room) && cell > 4) continue;
    const places = labels.flatMap(([, x, y, across, names]) => names.map((name, i) => [name, x + (i % across) * cell, y + LABEL + Math.floor(i / across) * cell]));
    return { cell, places, labels, height: top + deep + 2 };
  }
}

/** Who had which node after the event `at`: plans say who, changes of the pool say which nodes were there, and which main jobs took others. */
export function moment(events, at, pool) {
  const there = new Set(pool), holders = new Map(), jobs = new Map();
  for (let i = events.length - 1; i > at; i--) {
    const { kind, data } = events[i];
    if (kind !== "NodesChanged") continue;
    for (const node of data.joined) there.delete(node);
    for (const node of data.left) there.add(node);
  }
  for (let i = at; i >= 0; i--) {
    const allocation = events[i].plan?.allocation;
    if (!allocation) continue;
    for (const [id, nodes] of Object.entries(allocation)) for (const node of nodes) holders.set(node, Number(id));
    break;
  }
  for (const { kind, data } of events.slice(0, at + 1)) {
    if (kind !== "NodesChanged") continue;
    for (const [job, names] of Object.entries(data.jobs ?? {})) for (const node of names) jobs.set(node, job);
  }
  return { there, holders, jobs };
}

export function nodes({ place, feed, tell }) {
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Map of nodes; arrow keys move, Enter opens the trainer" });
  const said = h("p", { "aria-live": "polite" }, "Point at a cell, or move with the arrow keys.");
  const when = h("span", {}, "now"), slider = h("input", { type: "range", min: "0", max: "1", value: "1", "aria-label": "Moment" });
  const play = h("button", { type: "button" }, "Play"), load = h("button", { type: "button" }, "Load the last hours");
  const counts = h("p"), legend = h("p", { class: "faint" }), tables = h("div");
  let pinned = false, drawn = null, at = null, past = null, events = [], cursor = 0, timer = null, index = new Map();

  place.append(h("h1", {}, "Nodes"), counts, canvas, said,
    h("div", { class: "bar" }, load, play, slider, when), legend, tables);

  function held(row) {
    if (past) {
      const id = past.holders.get(row.node);
      return { id: past.there.has(row.node) ? id ?? null : null, role: id ? "member" : null,
        state: past.there.has(row.node) ? "idle" : "busy" };
    }
    return row;
  }

  function paint(pen, name, x, y, cell) {
    const row = feed.nodes.get(name);
    if (!row) return;
    const now = held(row), size = cell - (cell > 6 ? 2 : 1);
    pen.clearRect(x, y, cell, cell);
    if (cell >= WITH_NAMES) {
      pen.fillStyle = drawn.tones.text;
      pen.fillText(name, x, y + cell - 5, size);
    }
    const tall = cell >= WITH_NAMES ? size - LINE : size;
    if (now.id !== null && now.id !== undefined) pen.fillStyle = colours(now.id);
    else if (now.role) pen.fillStyle = drawn.tones.mark;
    else pen.fillStyle = drawn.tones[kind(now)];
    pen.fillRect(x, y, size, tall);
    if (now.role === "joining" && cell > 6) pen.clearRect(x + 3, y + 3, size - 6, tall - 6);
  }

  const shades = new Map();
  function colours(id) {
    if (!shades.has(id)) shades.set(id, colour(id));
    return shades.get(id);
  }

  function whole() {
    shades.clear();
    const groups = racks(feed.nodes.keys()), width = Math.max(200, place.clientWidth);
    const found = layout(groups, width, Math.max(220, innerHeight - 330));
    const { pen } = context(canvas, found.height);
    drawn = { ...found, pen, tones: Object.fromEntries(["busy", "free", "unused", "mark", "text"].map((n) => [n, theme(n)])) };
    index = new Map(found.places.map((one) => [one[0], one]));
    pen.fillStyle = theme("faint");
    for (const [text, x, y] of found.labels) pen.fillText(found.labels.length > 1 ? text.slice(0, 24) : "nodes", x, y + 12);
    for (const [name, x, y] of found.places) paint(pen, name, x, y, found.cell);
  }

  function words(name) {
    const row = feed.nodes.get(name);
    if (!row) return [];
    const now = held(row), parts = [`${name}: `];
    if (now.id !== null && now.id !== undefined) {
      const own = feed.trainers.get(now.id);
      parts.push(now.role === "joining" ? "starts for " : "trains ", link(`trainer/${now.id}`, own?.name ?? `trainer ${now.id}`),
        own?.user ? ` of ${own.user}` : "");
    } else if (now.role) parts.push("another user's trainer has it");
    else if (pooled(now)) parts.push("in the pool, no trainer needs it");
    else parts.push(kind(now) === "unused" ? "unused, but not ours: " : "the main scheduler's: ", because(past ? { why: "", job: past.jobs.get(name) } : row) || (now.state === "idle" ? "it joins soon" : "busy"));
    if (!past && (row.until || row.job)) parts.push(`; until ${row.until ? "" : "when is "}${until({ ...row, ends: row.until ? [row.until] : [] })}`);
    if (!past && row.phase) parts.push(` (${row.phase} since ${clock(row.since)})`);
    return [...parts, "; ", link(`decisions/${name}`, "what happened there")];
  }

  function say(name) {
    said.replaceChildren(...words(name));
  }

  function summary() {
    const found = { held: 0, free: 0, busy: 0, unused: 0 };
    let quarantined = 0, starting = 0;
    for (const row of feed.nodes.values()) {
      const now = held(row);
      quarantined += row.phase === "quarantined" ? 1 : 0;
      starting += now.role === "joining" ? 1 : 0;
      found[now.role || (now.id ?? null) !== null ? "held" : kind(now)]++;
    }
    counts.textContent = `${figure(feed.nodes.size)} ${feed.status?.unit ?? "node"}s: ${figure(found.held - starting)} train, ${figure(starting)} start for trainers, `
      + `${figure(found.free)} idle in the pool, ${figure(found.unused)} unused, ${figure(found.busy)} with the main scheduler; ${figure(quarantined)} in quarantine.`;
    counts.dataset.held = found.held;
    counts.dataset.free = found.free;
    legend.replaceChildren(h("span", { class: "key free" }), " idle in the pool  ", h("span", { class: "key busy" }), " the main scheduler's  ",
      h("span", { class: "key unused" }), " unused, not ours  ", "Other colours: a trainer each; hollow: its worker starts.");
    const made = h("div", {}, ...(past ? [] : nodeTables(feed, feed.status?.unit ?? "node")));
    if (!made.isEqualNode(tables)) tables.replaceChildren(...made.childNodes);
  }

  function hit(event) {
    if (!drawn) return null;
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return drawn.places.find(([, left, top]) => x >= left && x < left + drawn.cell && y >= top && y < top + drawn.cell)?.[0];
  }

  function go(step) {
    cursor = Math.min(drawn.places.length - 1, Math.max(0, cursor + step));
    whole();
    const [name, x, y] = drawn.places[cursor] ?? [];
    if (name === undefined) return;
    drawn.pen.strokeStyle = theme("focus");
    drawn.pen.lineWidth = 2;
    drawn.pen.strokeRect(x, y, drawn.cell - 1, drawn.cell - 1);
    say(name);
  }

  function show(value) {
    at = value >= events.length ? null : value;
    slider.value = String(value);
    past = at === null ? null : moment(events, at, [...feed.nodes.values()].filter((n) => n.state === "idle").map((n) => n.node));
    when.textContent = at === null ? "now" : clock(events[at].time);
    whole();
    summary();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  async function read() {
    try {
      events = attributed(await get(`/v1/events?limit=${EVENTS}`));
    } catch (error) {
      tell(error.message);
      return;
    }
    slider.max = String(events.length);
    show(events.length);
  }

  canvas.addEventListener("mousemove", (event) => { const name = hit(event); if (name && !pinned) say(name); });
  canvas.addEventListener("mouseleave", () => { pinned = false; });
  canvas.addEventListener("click", (event) => {
    const name = hit(event), now = name && held(feed.nodes.get(name));
    if (now?.id) location.hash = `#/trainer/${now.id}`; else if (name) say(name);
    pinned = Boolean(name);  // on the way to the link below, other cells do not take the line over
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 20, ArrowUp: -20, Home: -1e9, End: 1e9 };
    if (event.key in steps && drawn) { event.preventDefault(); go(steps[event.key]); }
    if (event.key === "Enter") { const now = held(feed.nodes.get(drawn?.places[cursor]?.[0]) ?? {}); if (now.id) location.hash = `#/trainer/${now.id}`; }
  });
  load.addEventListener("click", read);
  slider.addEventListener("input", async () => {
    const part = Number(slider.value) / Number(slider.max);
    stop();
    if (!events.length) { await read(); slider.value = String(Math.round(part * events.length)); }
    show(Number(slider.value));
  });
  play.addEventListener("click", async () => {
    if (timer) { stop(); return; }
    if (!events.length) await read();
    let next = at ?? 0;
    play.textContent = "Stop";
    timer = setInterval(() => { show(next); if (next++ >= events.length) stop(); }, PLAY_MS);
  });

  return {
    close: stop,
    update(changes) {
      const known = drawn && !changes.all && changes.nodes.every((name) => index.has(name) && feed.nodes.has(name));
      if (!known) whole();
      else if (!past) for (const name of changes.nodes) { const [, x, y] = index.get(name); paint(drawn.pen, name, x, y, drawn.cell); }
      if (changes.all || changes.nodes.length) summary();
    },
  };
}
