// One trainer: its nodes, speed and metrics on one time axis, the learnt curve, when it will end, logs, orders.
import { clock, facts, figure, h, link, span, table } from "./dom.js";
import { happened, latest, paired, shifts } from "./decisions.js";
import { ask, get } from "./feed.js";
import { colour, extent, gantt, lines, theme } from "./draw.js";

const CHANGES = 10, REPORTS = 1000, NODES = 64, EVERY_MS = 5000, LOG_MS = 1000, LOG_CHARS = 60000, SIZES = 64, METRICS = 6;
/** Times that differ by less than this factor are one. */
const ALIKE = 1.02;

const ADAPTIVE = { goodput: "goodput (samples/s times what a sample is worth)", "goodput.batch": "batch (samples)", "goodput.noise": "noise of the gradients (samples)" };
const adaptive = (name) => name === "goodput" || name.startsWith("goodput.");

/** When each node was a member: from the memberships that were published, until `end`. */
export function stays(events, id, end) {
  const open = new Map(), bars = new Map();
  const close = (node, at) => { bars.get(node).push([open.get(node), at]); open.delete(node); };
  for (const { time, actions } of events) {
    for (const action of actions) {
      if (action.trainer !== id || !action.data.members) continue;
      const members = new Set(action.data.members);
      for (const node of [...open.keys()]) if (!members.has(node)) close(node, time);
      for (const node of members) if (!open.has(node)) { if (!bars.has(node)) bars.set(node, []); open.set(node, time); }
    }
  }
  for (const node of [...open.keys()]) close(node, end);
  return bars;
}

/** When it will end and how sure that is, in words. `best` is in how many seconds at the earliest: the feed does not say. */
export function ending(own, at, best = null) {
  const ends = own.ends_in_s;
  if (!ends) return "not known: it has no amount of work";
  const { likely, late, waits, unknown } = ends, when = (seconds) => `in ${span(seconds)} (${clock(at + seconds)})`, early = ends.early ?? best;
  if (likely === null) return `not known: ${unknown}`;
  const base = waits === null ? "at its present speed" : waits ? `if it gets ${own.unit}s in ${span(waits)}` : "if its workers are ready soon";
  const sooner = early !== null && early < likely / ALIKE ? `; ${when(early)} at the earliest, on as many ${own.unit}s as it may get` : "";
  const later = late === null ? "how much later it may be is not known yet: it was submitted a moment ago"
    : late > likely * ALIKE ? `${when(late)} ${waits === null ? "at its average speed since it was submitted" : `with fewer ${own.unit}s, or as slowly as until now`}`
      : `how much later it may be is not known: ${waits === null ? "on average it was no slower than now" : "no slower speed of it is known"}`;
  return `probably ${when(likely)}, ${base}${sooner}; ${later}`;
}

/** Of which step its last checkpoint is, and what becomes of those after it; empty if nothing is known. */
export function checkpoint({ saved, step, status, members, ended_at: ended, unit }) {
  if ((saved ?? null) === null || status === "completed") return "";
  const after = saved + 1 < step ? `steps ${figure(saved + 1)} to ${figure(step)}` : `step ${figure(step)}`;
  const what = members.length ? `; if it loses all its ${unit}s at once, it goes on from there`
    : saved >= step ? ": no step is lost" : `: ${after} ${ended ? `${saved + 1 < step ? "are" : "is"} lost` : "will be done again"}`;
  return `the last is of step ${figure(saved)}${what}`;
}

/** Whether more nodes would help: its speed on the most it may have, beside that on those it has, or on the fewest. */
export function more({ scalability: { points, sizes }, members, n_min: least = 1, n_max: most, unit, ended_at: ended }) {
  const known = new Map([...sizes.map((one) => [one.nodes, one.rate]), ...points].filter(([size, rate]) => size >= least && rate > 0)), has = known.has(members.length) ? members.length : Math.min(...known.keys());
  if (ended || !known.size) return "";
  const top = Math.max(...known.keys());
  if (top <= has) return members.length >= most ? `it has as many as it may have (${figure(most)})` : "";
  const times = known.get(top) / known.get(has), sure = sizes.some((one) => one.nodes === top && one.source === "observed");
  return `${times > 1.05 ? "yes" : "hardly"}: ${figure(known.get(top), 3)} samples/s on ${figure(top)}, ${times.toFixed(1)} times those on ${figure(has)}${sure ? "" : " (a forecast)"}`;
}

const NAMED = 16;
const some = (names) => `${[...names].sort().slice(0, NAMED).join(" ")}${names.length > NAMED ? ` and ${figure(names.length - NAMED)} more` : ""}`;

/** Which nodes it has: those that train, and those where its worker starts. */
export function placed({ members, nodes }) {
  const starts = nodes.filter((node) => !members.includes(node));
  return [[members, members.length === 1 ? "trains" : "train"], [starts, starts.length === 1 ? "starts" : "start"]]
    .filter(([names]) => names.length).map(([names, what]) => `${figure(names.length)} ${what}: ${some(names)}`).join("; ") || "none";
}

/** What a change of its nodes was, in words. */
const KINDS = { join: "nodes joined", leave: "nodes left", loss: "a node was lost", restart: "a start, or one from its checkpoint" };

/** What all rescales cost a trainer, in a sentence. */
export function paid(pauses) {
  const by = new Map();
  for (const p of pauses) { const [still, lost] = by.get(p.generation) ?? [0, 0]; by.set(p.generation, [Math.max(still, p.pause_s), Math.max(lost, p.lost_steps)]); }
  const sum = (which) => [...by.values()].reduce((all, one) => all + one[which], 0);
  return by.size ? `${figure(by.size)} in all: it stood still for ${span(sum(0))}, and did ${figure(sum(1))} steps again` : "";
}

/** What the batch of a trainer is worth beside its initial one, in words; null if it does not adapt. */
export function batch(metrics) {
  const [size, initial, faster, worth, noise] = ["batch", "initial", "speed", "efficiency", "noise"].map((name) => metrics[`goodput.${name}`]);
  if ([size, initial, faster, worth].some((value) => !Number.isFinite(value))) return null;
  return `${figure(size)} of ${figure(initial)}: ${faster.toFixed(1)} times the samples/s, ${(100 * worth).toFixed(0)} % of their worth, `
    + `${(faster * worth).toFixed(1)} times the progress; noise ${figure(noise, 3)} samples`;
}

/** Rows of sizes: what plans expect of each, beside what is known of this trainer's own speed. */
export function expected(points, sizes) {
  const plans = new Map(points), own = new Map(sizes.map((one) => [one.nodes, one]));
  return [...new Set([...plans.keys(), ...own.keys()])].filter((size) => size > 0).sort((a, b) => a - b).slice(0, SIZES).map((size) => {
    const one = own.get(size), error = one?.error ?? null;
    return [figure(size), figure(plans.get(size), 3), figure(one?.rate, 3), error === null ? "-" : `${(100 * error).toFixed(1)} %`, one?.source ?? "a guess"];
  });
}

/** The decisions that changed which nodes a trainer has, the last one first: [event, before, after]. */
export function changes(events, id) {
  return paired(events).flatMap(([event, before]) =>
    shifts(event, before).filter(([who]) => who === id).map(([, was, is]) => [event, was, is])).reverse();
}

export function trainer({ place, feed, id, about, tell }) {
  const title = h("h1", {}, `Trainer ${id}`), head = h("div"), orders = h("div", { class: "bar" }), charts = h("div"), curve = h("div"), logs = h("div");
  place.append(h("p", {}, link("trainers", "all trainers")), title, head, orders, charts, curve, logs);
  let own = null, past = null, decided = -1, events = [], closed = false, timer = null, following = null, ends = {};

  const name = (number) => (number === id ? "it" : feed.trainers.get(number)?.name ?? `trainer ${number}`);

  async function read() {
    try {
      const asked = feed.decisions, known = asked === decided;
      const found = await Promise.all([get(`/v1/trainers/${id}`), known ? events : latest(events),
        get(`/v1/reports?trainer=${id}&limit=${REPORTS}`), get(`/v1/pauses?trainer=${id}&limit=${REPORTS}`)]);
      [events, decided] = [found[1], asked];
      if (closed) return;
      if (!own && !about.public) ordered(found[0]);
      own = found[0];
      past = { events, reports: found[2], pauses: found[3], at: Date.now() / 1000 };
      whole();
    } catch (error) {
      tell(error.message);
    }
    if (!closed && !own?.ended_at) timer = setTimeout(read, EVERY_MS);
  }

  function summary() {
    const now = feed.trainers.get(id) ?? own;
    if (!now) return;
    title.textContent = `${now.name} (${id})`;
    const work = now.work ? `${figure(now.samples)} of ${figure(now.work)} samples (${((100 * now.samples) / now.work).toFixed(1)} %)` : `${figure(now.samples)} samples`;
    const [last] = changes(events, id), pause = own?.pauses.at(-1);
    head.replaceChildren(facts([["status", now.reason ? `${now.status}: ${now.reason}` : now.status], ["note", now.note], ["it runs when", now.remedy],
      [now.ended_at ? "ended" : "ends", now.ended_at ? clock(now.ended_at) : ending(now, feed.at, own?.ends_in_s?.early)], [`${now.unit}s`, now.ended_at ? "" : placed(now)],
      ["speed", now.ended_at ? "" : now.rate === null ? "-" : `${figure(now.rate)} samples/s`], [`more ${now.unit}s`, own ? more({ ...own, ...now }) : ""],
      ["last change", last ? h("span", {}, link(`decisions/${last[0].id}`, clock(last[0].time)), `: ${last[1] === last[2] ? `other ${now.unit}s` : `from ${last[1]} to ${last[2]} ${now.unit}s`}, because: ${happened(last[0], name)}`) : ""],
      ["last pause", pause ? `${span(pause.pause_s)} at ${clock(pause.time)} (${KINDS[pause.kind] ?? pause.kind}), ${figure(pause.lost_steps)} steps lost` : ""],
      ["rescales", past ? paid(past.pauses) : ""], ["checkpoint", checkpoint(now)], ["done", `${work}; step ${figure(now.step)}, epoch ${figure(now.epoch)}`],
      ["batch", batch(now.metrics)], ["metrics", Object.entries(now.metrics).filter(([name]) => !adaptive(name)).map(([name, value]) => `${name} ${figure(value)}`).join(", ")],
      ["submitted", `${clock(now.submitted_at)} by ${now.user}`], ["its script was warned", (own?.warned ?? now.warned).join("; ")]]));
  }

  function whole() {
    summary();
    if (!past) return;
    const { reports, pauses } = past, end = own.ended_at ?? past.at;
    const bars = stays(events, id, end), begin = Math.min(end - 1, ...[...bars.values()].map((one) => one[0][0]), ...reports.slice(0, 1).map((r) => r.time));
    const range = [begin, end], marks = [...new Set(pauses.map((p) => p.generation))].map((g) => pauses.find((p) => p.generation === g).time).filter((at) => at >= begin);
    const all = [...new Set(reports.flatMap((r) => Object.keys(r.metrics)))].sort(), names = all.filter((name) => !adaptive(name));
    const shown = [...bars].slice(0, NODES), sayX = (at) => new Date(at * 1000).toLocaleTimeString();
    const pictures = [];
    const picture = (words, draw) => { const canvas = h("canvas", { role: "img", "aria-label": words }); pictures.push([canvas, draw]); return h("figure", {}, h("figcaption", {}, words), canvas); };
    const metric = (name, words = name) => picture(words, (canvas) => lines(canvas, [{ points: reports.filter((r) => (r.metrics[name] ?? null) !== null).map((r) => [r.time, r.metrics[name]]), colour: theme("link") }],
      { range, marks, sayX, sayY: figure, zero: false, height: 120 }));
    charts.replaceChildren(h("h2", {}, "Over time"),
      picture(`nodes${bars.size > NODES ? ` (${NODES} of ${bars.size})` : ""}; lines mark rescales`, (canvas) => gantt(canvas, shown.map(([name, own_]) => ({ name, bars: own_, colour: colour(id) })), { range, sayX, marks })),
      picture("samples/s", (canvas) => lines(canvas, [{ points: reports.filter((r) => r.rate !== null).map((r) => [r.time, r.rate]), colour: theme("link") }], { range, marks, sayX, sayY: figure, height: 120 })),
      ...Object.entries(ADAPTIVE).filter(([name]) => all.includes(name)).map(([name, words]) => metric(name, words)),
      ...names.slice(0, METRICS).map((name) => metric(name)),
      names.length > METRICS ? h("p", { class: "faint" }, `${names.length - METRICS} more metrics: bftrainer metrics ${id}`) : "",
      h("h2", {}, "What decisions changed for it"), table(["time", "nodes before", "after", "because"], changes(events, id).slice(0, CHANGES).map(([event, was, is]) =>
        [link(`decisions/${event.id}`, clock(event.time)), figure(was), figure(is), happened(event, name)]), [1, 2], "nothing in the last decisions"),
      h("h2", {}, "Rescales, and what they cost"), table(["time", "what", "nodes", "stood still", "steps lost"], own.pauses.map((p) =>
        [clock(p.time), KINDS[p.kind] ?? p.kind, figure(p.size), span(p.pause_s), figure(p.lost_steps)]).reverse(), [2, 3, 4], "none yet"));
    for (const [canvas, draw] of pictures) draw(canvas);
    learnt();
  }

  function learnt() {
    const known = own.scalability, sizes = known.sizes.filter((one) => one.node_class === null);
    const canvas = h("canvas", { role: "img", "aria-label": "Speed by nodes: estimates with one standard error" });
    const cost = (way, part) => own.costs[way][part];
    const costs = [["a node joins: the members stand still", cost("up", "stall")], ["a newcomer's start", cost("up", "init")], ["a node leaves", cost("down", "stall")]];
    curve.replaceChildren(h("h2", {}, "What is known of its speed"), h("figure", {}, canvas,
      h("figcaption", {}, `Samples/s by nodes (${known.mode}). Line: what plans count with, also from other trainings with this command; dots: from its own measurements, with one standard error. The next plan may ask for up to ${figure(known.may_ask_for)}.`)),
      table(["nodes", "samples/s that plans count with", "known of this training", "error", "from"], expected(known.points, sizes), [0, 1, 2, 3], "no size is known"),
      table(["a rescale costs", "seconds", "error", "measured", "from"], costs.map(([words, one]) => [words, figure(one.seconds, 2), figure(one.error_s, 2), figure(one.count), one.source]), [1, 2, 3]));
    const measured = sizes.filter((one) => one.error !== null);
    lines(canvas, [{ points: known.points.length ? known.points : [[0, 0]], colour: theme("link") }, { loose: true, band: measured.map((one) => [one.nodes, one.rate * (1 - one.error), one.rate * (1 + one.error)]),
      points: measured.map((one) => [one.nodes, one.rate]), colour: theme("mark") }],
      { sayX: figure, sayY: figure, dots: true, height: 180, range: extent(known.points.map((p) => p[0]), true) });
  }

  async function order(path, options, words) {
    try {
      await ask(path, options);
      tell("");
      said.textContent = words;
      clearTimeout(timer);
      read();
    } catch (error) {
      tell(error.message);
    }
  }

  const said = h("span", { role: "status" });
  function ordered(known) {
    const cancel = h("button", { type: "button" }, "Cancel it");
    const priority = h("input", { type: "number", min: "0.01", step: "any", value: String(known.priority ?? 1), "aria-label": "Priority" });
    cancel.addEventListener("click", () => {
      if (cancel.dataset.sure) order(`/v1/trainers/${id}`, { method: "DELETE" }, "It is told to end; it writes a checkpoint first.");
      cancel.textContent = cancel.dataset.sure ? "Cancel it" : "Really cancel? Press again";
      if (cancel.dataset.sure) delete cancel.dataset.sure; else cancel.dataset.sure = "yes";
    });
    if (!known.ended_at) orders.append(cancel, h("label", {}, "priority ", priority),
      h("button", { type: "button", onclick: () => order(`/v1/trainers/${id}/priority`, { method: "POST", body: JSON.stringify({ priority: Number(priority.value) }) }, `Its priority is ${priority.value} now.`) }, "Set"));
    orders.append(h("button", { type: "button", onclick: () => { if (!follow.disabled) follow.click(); logs.scrollIntoView(); } }, "Logs"), said);
    const follow = h("button", { type: "button" }, "Show what its workers print");
    const texts = new Map();
    logs.append(h("h2", {}, "Logs"), follow);
    const print = async () => {
      try {
        const query = new URLSearchParams(Object.entries(ends).map(([node, end]) => [node, String(end)]));
        for (const [node, part] of Object.entries(await get(`/logs/${id}?${query}`))) {
          ends[node] = part.end;
          if (!texts.has(node)) { texts.set(node, [h("h3"), h("pre", { tabindex: "0", "aria-label": `Output on ${node}` })]); logs.append(...texts.get(node)); }
          const [name, box] = texts.get(node), below = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
          name.textContent = `${node}, last printed ${clock(part.at)}`;
          if (part.text) box.textContent = (box.textContent + part.text).slice(-LOG_CHARS);
          if (below) box.scrollTop = box.scrollHeight;
        }
        if (!texts.size) said.textContent = "Nothing has been printed yet.";
      } catch (error) {
        tell(error.message);
      }
      if (!closed) following = setTimeout(print, LOG_MS);
    };
    follow.addEventListener("click", () => { follow.disabled = true; print(); });
    if (known.status === "failed") follow.click();
  }

  if (id === null) {
    place.replaceChildren(h("p", {}, "The address names no trainer."));
    return { update() {} };
  }
  read();
  return {
    close() { closed = true; clearTimeout(timer); clearTimeout(following); },
    update(changes) { if (changes.all) whole(); else if (changes.trainers.includes(id)) summary(); },
  };
}
