// Searches: their rungs, trials as lines through their parameters, history, best, and forecast against deadline.
import { clock, facts, figure, h, link, span, table } from "./dom.js";
import { get } from "./feed.js";
import { colour, context, extent, lines, theme } from "./draw.js";

const EVERY_MS = 3000, LINES = 1000, ROWS = 200;
const params = (found) => Object.entries(found ?? {}).map(([name, value]) => `${name}=${typeof value === "number" ? figure(value) : value}`).join(", ");

/** When a study will be done, as it was planned: that may be a while ago, and the words count from then. */
export const forecast = ({ text, at, because }, now) => `planned ${span(Math.max(0, now - at))} ago (${because}): ${text}`;

/** Where a value lies on its axis, from 0 to 1: numbers by size, words by order of the alphabet. */
export function places(trials, name) {
  const values = trials.map((t) => t.params[name]).filter((value) => value !== undefined);
  if (values.every((value) => typeof value === "number")) {
    if (values.every((value) => value === values[0])) return { at: () => 0.5, low: figure(values[0]), high: "" };
    const [low, high] = extent(values), log = low > 0 && high / low > 100;
    const on = log ? Math.log : (value) => value;
    return { at: (value) => (on(value) - on(low)) / (on(high) - on(low) || 1), low: figure(low), high: figure(high) };
  }
  const words = [...new Set(values.map(String))].sort();
  return { at: (value) => words.indexOf(String(value)) / (words.length - 1 || 1), low: words[0], high: words.at(-1) };
}

/** The best value after each trial that has one, in order of their ends. */
export function history(trials, down) {
  let best = null;
  return trials.filter((t) => t.value !== null).sort((a, b) => (a.ended_at ?? Infinity) - (b.ended_at ?? Infinity) || a.number - b.number)
    .map((t, i) => {
      best = best === null ? t.value : down ? Math.min(best, t.value) : Math.max(best, t.value);
      return [i + 1, best, t.value];
    });
}

function parallel(canvas, trials, names, metric, down) {
  const { pen, width, height } = context(canvas, 240);
  const valued = trials.filter((t) => t.value !== null).slice(-LINES), [low, high] = extent(valued.map((t) => t.value));
  const axes = [...names.map((name) => [name, places(valued, name)]), [metric, places(valued.map((t) => ({ params: { [metric]: t.value } })), metric)]];
  const x = (i) => 50 + (i / (axes.length - 1 || 1)) * (width - 100), y = (part) => height - 34 - part * (height - 64);
  for (const t of valued) {
    const good = down ? 1 - (t.value - low) / (high - low || 1) : (t.value - low) / (high - low || 1);
    pen.strokeStyle = colour(2, 0.12 + 0.8 * good * good);
    pen.beginPath();
    axes.forEach(([name, axis], i) => pen.lineTo(x(i), y(axis.at(i < names.length ? t.params[name] : t.value))));
    pen.stroke();
  }
  pen.textAlign = "center";
  axes.forEach(([name, axis], i) => {
    pen.strokeStyle = theme("faint");
    pen.beginPath(); pen.moveTo(x(i), y(0)); pen.lineTo(x(i), y(1)); pen.stroke();
    pen.fillStyle = theme("text");
    pen.fillText(name.slice(0, 16), x(i), 12);
    pen.fillStyle = theme("faint");
    pen.fillText(String(axis.high ?? "").slice(0, 12), x(i), 26);
    pen.fillText(String(axis.low ?? "").slice(0, 12), x(i), height - 18);
  });
}

export function studies({ place, feed, id, tell }) {
  if (id !== null) return study({ place, feed, id, tell });
  const list = h("div");
  let over = [], asked = false;
  place.append(h("h1", {}, "Studies"), list);

  function show() {
    const rows = [...over.filter((one) => !feed.studies.has(one.id)), ...feed.studies.values()].sort((a, b) => b.id - a.id);
    list.replaceChildren(table(["id", "study", "user", "status", "trials", "under way", "best", "with", "node-hours"], rows.map((one) =>
      [figure(one.id), link(`studies/${one.id}`, one.name), one.user, one.status, figure(one.trials), figure(one.counts.running ?? 0),
        one.best ? `${one.metric} ${figure(one.best.value)}` : "-", one.best ? params(one.best.params) : "-", figure(one.node_s / 3600, 3)]), [0, 4, 5, 8], "no study yet"));
  }

  return {
    update(changes) {
      if (!asked) { asked = true; get("/v1/studies?limit=100").then((found) => { over = found; show(); }, (error) => tell(error.message)); }
      if (changes.all || changes.studies.length) show();
    },
  };
}

function study({ place, feed, id, tell }) {
  const body = h("div");
  let found = null, timer = null, closed = false, stale = false;
  place.append(h("p", {}, link("studies", "all studies")), body);

  async function read() {
    timer = null;
    stale = false;
    try {
      const told = await get(`/v1/studies/${id}?course=0`);
      if (closed) return;
      found = told;
      show();
    } catch (error) {
      tell(error.message);
    }
    if (!closed) timer = setTimeout(() => { timer = null; if (stale) read(); }, EVERY_MS);
  }

  function show() {
    const s = found, down = s.direction === "minimize", names = [...new Set(s.table.flatMap((t) => Object.keys(t.params)))];
    const lanes = h("canvas", { role: "img", "aria-label": "Trials as lines through their parameters" }), course = h("canvas", { role: "img", "aria-label": "Best value after each trial" });
    const late = s.deadline_at ? `${clock(s.deadline_at)} (${s.deadline_at > feed.at ? `in ${span(s.deadline_at - feed.at)}` : "over"})` : "";
    const all = history(s.table, down);
    body.replaceChildren(h("h1", {}, `${s.name} (${s.id})`),
      facts([["status", `${s.status}${s.reason ? `: ${s.reason}` : ""}`], ["best", s.best ? `${s.metric} ${figure(s.best.value)} in trial ${s.best.number}: ${params(s.best.params)}` : "no trial has reported yet"],
        ["forecast", s.ended_at ? "" : s.forecast ? forecast(s.forecast, feed.at) : "none yet"], ["deadline", late],
        ["trials", `${figure(s.trials)}: ${Object.entries(s.counts).map(([word, count]) => `${count} ${word}`).join(", ")}`], ["sampler", s.sampler], ["stopping", s.stopping],
        [`${s.unit}s now`, figure(s.nodes)], ["node-hours", figure(s.node_s / 3600, 3)]]),
      h("h2", {}, "Rungs"), table(["samples", "trials there", "ended", "best"], s.rungs.map((r) => [figure(r.samples), Object.entries(r.trials).map(([word, count]) => `${count} ${word}`).join(", ") || "-", figure(r.ended), figure(r.best)]), [0, 2, 3]),
      h("h2", {}, "Parameters"), h("figure", {}, lanes, h("figcaption", {}, "A line is a trial; strong ones are better.")),
      h("h2", {}, "History"), h("figure", {}, course, h("figcaption", {}, `Best ${s.metric} after each trial; dots: the trial's own.`)),
      h("h2", {}, "Trials"), table(["trial", "status", s.metric, "samples", "nodes", "trainer", "parameters", "because"], [...s.table].sort((a, b) =>
        (a.value === null) - (b.value === null) || (down ? 1 : -1) * (a.value - b.value)).slice(0, ROWS).map((t) =>
        [figure(t.number), t.status, figure(t.value), `${figure(t.samples)} of ${figure(t.until)}`, figure(t.nodes), t.trainer_id ? link(`trainer/${t.trainer_id}`, t.trainer) : "-", params(t.params), t.reason]), [0, 2, 4]));
    parallel(lanes, s.table, names, s.metric, down);
    lines(course, [{ points: all.map(([i, best]) => [i, best]), colour: theme("link") }, { loose: true, points: all.map(([i, , own]) => [i, own]), colour: theme("mark") }],
      { sayX: figure, sayY: figure, zero: false });
  }

  read();
  return {
    close() { closed = true; clearTimeout(timer); },
    update(changes) {
      if (changes.all && found) show();
      if (changes.studies.includes(id)) { stale = true; if (!timer) read(); }
    },
  };
}
