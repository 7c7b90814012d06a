// Decisions: what happened, the plan, how good it is and whether that is proven, and what moved, in a sentence.
import { clock, facts, figure, h, link, span, table } from "./dom.js";
import { get } from "./feed.js";

const EVENTS = 2000, NEWER = 100, ROWS = 100, PAUSES = 500;
/** What is known of plans: it is asked for again with each event. */
const MOVED = new WeakMap();
/** Why nodes left, where the scheduler's own state says that they have. */
const TAKEN = new Set(["poll", "log", "the scheduler asked for it back"]);
/** What events are that are not named by what happens. */
const KINDS = { Measured: "its speed was measured", PlanDue: "it was time to share anew" };
/** What changed in who gets no pilots; a reader may not see all of it. */
function barred({ users = {}, nodes = {} }) {
  const parts = [...Object.entries(users).map(([user, why]) => `${user} gets no pilots for a while: ${why}`),
    ...Object.entries(nodes).map(([user, names]) => `${user} gets no pilots for a while on ${some(names)}`)];
  return some(parts) || "who gets no pilots for a while has changed";
}

const some = (names) => (names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", "));

/** Nodes that the daemon gave up itself, for no main job that it knew of: as headroom, or because an admin wants it so. */
const givenUp = ({ vacated = [], jobs = {}, reason }) => (reason === "poll" ? vacated.filter((node) => !Object.values(jobs).some((own) => own.includes(node))) : []);

const JOBS = 4;
/** Which main jobs nodes that left went to, in words; where there are several, or nodes left for another reason as well, with their nodes. */
function takers({ jobs = {}, left }) {
  const found = Object.entries(jobs), all = found.length === 1 && found[0][1].length === left.length;
  const names = found.slice(0, JOBS).map(([job, nodes]) => (all ? job : `${job} (${some(nodes)})`)).join(", ");
  return found.length ? ` for main job${found.length > 1 ? "s" : ""} ${names}${found.length > JOBS ? ` and ${found.length - JOBS} more` : ""}` : "";
}

/** Events that are known, and later ones of an answer; null if some between may be missing. */
export function merged(known, later) {
  if (!known.length || !later.length) return known.length ? known : later;
  const last = known.at(-1).id;
  return later[0].id > last ? null : [...known, ...later.filter((event) => event.id > last)].slice(-EVENTS);
}

/** The last events: those that are known, and what came after them. Speeds are measured far more often than nodes move. */
export async function latest(known) {
  const later = await get(`/v1/events?limit=${known.length ? NEWER : EVENTS}`);
  return attributed(merged(known, later) ?? await get(`/v1/events?limit=${EVENTS}`));
}

/** Which main job took a node by itself shows a moment after it has left: the change with which it left gets to know. */
export function attributed(events) {
  const last = new Map();
  for (const { kind, data } of events) {
    if (kind !== "NodesChanged") continue;
    const left = new Set(data.left);
    for (const [job, names] of Object.entries(data.jobs ?? {})) for (const node of names) {
      const before = left.has(node) ? null : last.get(node);
      if (before && !Object.values(before.jobs ?? {}).some((own) => own.includes(node))) ((before.jobs ??= {})[job] ??= []).push(node);
    }
    for (const node of left) last.set(node, data);
  }
  return events;
}

/** What happened, in words. */
export function happened({ kind, data }, name = (id) => `trainer ${id}`) {
  if (kind === "NodesChanged") {
    const parts = [];
    if (data.joined.length) parts.push(`${some(data.joined)} joined`);
    const ours = givenUp(data), left = data.left.filter((node) => !ours.includes(node));
    if (left.length) parts.push(`${some(left)} left${TAKEN.has(data.reason) ? `, taken back by the main scheduler${takers({ ...data, left })}` : ""}`);
    if (ours.length) parts.push(`${some(ours)} left, given up by the daemon`);
    if (!parts.length) for (const [job, names] of Object.entries(data.jobs ?? {})) parts.push(`main job ${job} has taken ${some(names)}`);
    return `${parts.join(", ")}${data.reason && !TAKEN.has(data.reason) ? ` (${data.reason})` : ""}`;
  }
  if (kind === "UsersBarred") return barred(data);
  const words = KINDS[kind] ?? kind.replace(/(?<!^)([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`);
  const more = ["node", "reason", "status"].filter((key) => data[key]).map((key) => data[key]).join(", ");
  const what = data.trainer === undefined ? words : `${name(data.trainer)}: ${words.replace(/^Trainer /, "").toLowerCase()}`;
  return what + (more ? ` (${more})` : "");
}

/** The trainers that get other nodes: [id, how many before, how many now, those that go, those that come]. */
export function moved(plan, before) {
  const known = MOVED.get(plan);
  if (known?.before === before) return known.found;
  const found = difference(plan, before);
  MOVED.set(plan, { before, found });
  return found;
}

function difference(plan, before) {
  const ids = new Set([...Object.keys(plan.allocation), ...Object.keys(before?.allocation ?? {})]);
  return [...ids].map((id) => {
    const was = before?.allocation?.[id] ?? [], is = plan.allocation[id] ?? [], had = new Set(was), has = new Set(is);
    return [Number(id), was.length, is.length, was.filter((node) => !has.has(node)), is.filter((node) => !had.has(node))];
  }).filter(([, , , gone, come]) => gone.length || come.length);
}

/** Who has which nodes after an event, as its plan says; or as it stops workers of users who get no pilots. Null: as before. */
function after(event, before) {
  if (event.plan || event.kind !== "UsersBarred" || !before) return event.plan;
  const stopped = new Set(event.actions.filter(({ kind }) => kind === "StopWorker").map(({ trainer, data }) => `${trainer} ${data.node}`));
  return stopped.size ? { allocation: Object.fromEntries(Object.entries(before.allocation).map(([id, nodes]) => [id, nodes.filter((node) => !stopped.has(`${id} ${node}`))])) } : null;
}

/** The trainers that get other nodes with an event, as `moved` tells of a plan. */
export function shifts(event, before) {
  const now = after(event, before);
  return now ? moved(now, before) : [];
}

/** A sentence that names the numbers. */
export function sentence(event, before, name) {
  const plan = event.plan, shifted = shifts(event, before);
  if (!plan && !shifted.length) return `${happened(event, name)}: no new plan was needed.`;
  const changes = shifted.map(([id, was, is, gone, come]) =>
    (was === is ? `${name(id)} gets ${some(come)} in place of ${some(gone)}` : was === 0 ? `${name(id)} gets ${is}` : is === 0 ? `${name(id)} gives ${was === 1 ? "its node" : `all ${was}`} back` : `${name(id)} goes from ${was} to ${is}`));
  const what = changes.length ? `${changes.slice(0, 6).join(", ")}${changes.length > 6 ? ` and ${changes.length - 6} more change` : ""}` : "all that you see stay as they are";
  if (!plan) return `${happened(event, name)}. So ${what}.`;
  const sure = plan.proven ? "no other split is better, which is proven"
    : plan.bound !== null && Number.isFinite(plan.bound) ? `none can exceed ${figure(plan.bound)}` : "it is not proven that no other is better";
  return `${happened(event, name)}. Of ${figure(event.pool_size)} in the pool, ${what}; the objective is ${figure(plan.objective)}, and ${sure}.`;
}

/** What the rescales of each decision cost: event -> trainer -> [longest pause, steps taken again].
 *
 * A membership is often published in a later event, when newcomers are ready: it belongs to the last plan that moved
 * its trainer.
 */
export function costs(events, pauses) {
  const last = new Map(), because = new Map(), found = new Map();
  for (const [event, before] of paired(events)) {
    for (const [id] of shifts(event, before)) last.set(id, event.id);
    for (const { trainer, generation } of event.actions) {
      const key = `${trainer}/${generation}`;
      if (generation !== null && last.has(trainer) && !because.has(key)) because.set(key, last.get(trainer));
    }
  }
  for (const { trainer, generation, pause_s, lost_steps } of pauses) {
    const id = because.get(`${trainer}/${generation}`);
    if (id === undefined) continue;
    const own = found.get(id) ?? found.set(id, new Map()).get(id), [longest, lost] = own.get(trainer) ?? [0, 0];
    own.set(trainer, [Math.max(longest, pause_s), Math.max(lost, lost_steps)]);
  }
  return found;
}

const AN_HOUR_S = 3600;

/** What happened in the last hour, in a sentence: to nodes, and to the trainers that the reader may see. */
export function lately(events, trainers, now) {
  const late = events.filter((event) => event.time > now - AN_HOUR_S), begin = events[0]?.time > now - AN_HOUR_S ? `Since ${clock(events[0].time)}` : "In the last hour";
  let joined = 0, left = 0, taken = 0;
  for (const { kind, data } of late) {
    if (kind !== "NodesChanged") continue;
    joined += data.joined.length;
    left += data.left.length;
    taken += TAKEN.has(data.reason) ? data.left.length - givenUp(data).length : 0;
  }
  const ends = {}, own = [...trainers], fresh = own.filter((t) => t.submitted_at > now - AN_HOUR_S).length;
  for (const t of own) if (t.ended_at > now - AN_HOUR_S) ends[t.status] = (ends[t.status] ?? 0) + 1;
  const ended = Object.entries(ends).map(([word, count]) => `, ${figure(count)} ${word}`).join("");
  const many = (count, what) => `${figure(count)} ${what}${count === 1 ? "" : "s"}`, moves = paired(events).filter(([event, before]) => event.time > now - AN_HOUR_S && shifts(event, before).length).length;
  return `${begin}: nodes joined ${many(joined, "time")} and left ${many(left, "time")}, ${figure(taken)} taken back by the main scheduler; ${many(moves, "decision")} moved nodes. `
    + `Trainers: ${figure(fresh)} submitted${ended || ", none ended"}.`;
}

/** All that a search looks at: the sentence, and each node, where the sentence names some of them. */
export function searched(event, before, words) {
  const { joined = [], left = [] } = event.kind === "NodesChanged" ? event.data : {};
  const nodes = shifts(event, before).flatMap(([, , , gone, come]) => [...gone, ...come]);
  return [words, ...joined, ...left, ...nodes].join(" ").toLowerCase();
}

/** Whether an event tells of a node: it came or went, a main job took it, or a worker on it started, stopped or failed. */
export function concerns(event, before, node) {
  const { kind, data, actions } = event, { joined = [], left = [], jobs = {} } = kind === "NodesChanged" ? data : {};
  const named = [data.node, ...joined, ...left, ...Object.values(jobs).flat(), ...actions.map((action) => action.data.node)];
  return named.includes(node) || shifts(event, before).some(([, , , gone, come]) => gone.includes(node) || come.includes(node));
}

/** Whether the last plan is proven, and how long plans took, in a few sentences. */
export function summary(events) {
  const planned = events.filter((event) => event.plan), plans = planned.map((event) => event.plan), last = plans.at(-1), times = plans.map((plan) => plan.solve_s * 1e3).sort((a, b) => a - b);
  if (!times.length) return "";
  return `The last plan (${clock(planned.at(-1).time)}, ${last.allocator}) took ${figure(last.solve_s * 1e3, 3)} ms, and is ${last.proven ? "proven to be optimal" : `not proven to be optimal${last.fallback ? `: ${last.fallback}` : ""}`}. `
    + `The last ${figure(times.length)} took ${figure(times[times.length >> 1], 3)} ms at the median, ${figure(times.at(-1), 3)} ms at most; `
    + `${figure(plans.filter((plan) => plan.proven).length)} are proven to be optimal. `
    + "The objective is what a plan is worth to all trainers together; the bound is the most that any plan could be worth.";
}

/** Each event with the plan before it. Of the first one here it is not known, unless it is the first of all. */
export function paired(events) {
  let before = events[0]?.id === 1 ? null : events.find((event) => event.plan)?.plan ?? null;
  return events.map((event) => {
    const pair = [event, before];
    before = after(event, before) ?? before;
    return pair;
  });
}

export function decisions({ place, feed, id, words: asked, tell }) {
  const list = h("div"), hour = h("p"), said = h("p", { class: "faint" }), search = h("input", { type: "search", placeholder: "trainer or node", "aria-label": "Search decisions", value: asked }), only = h("input", { type: "checkbox", id: "planned", checked: true });
  place.append(h("h1", {}, "Decisions"), hour, said, h("div", { class: "bar" }, only, h("label", { for: "planned" }, "only what moved nodes"),
    search), list);
  let known = -1, events = [], pauses = [], asking = false, closed = false;
  const name = (number) => feed.trainers.get(number)?.name ?? `trainer ${number}`;

  function show() {
    const pairs = paired(events);
    if (id !== null) {
      const pair = pairs.find(([event]) => event.id === id);
      list.replaceChildren(pair ? one(...pair) : h("p", {}, `The last ${EVENTS} events do not have number ${id}.`));
      return;
    }
    const wanted = search.value.trim().toLowerCase(), node = feed.nodes.has(search.value.trim()) ? search.value.trim() : null;
    only.disabled = node !== null;  // all that happened on it is shown
    const rows = pairs.filter(([event, before]) => (node ? concerns(event, before, node) : !only.checked || shifts(event, before).length)).reverse()
      .map(([event, before]) => [event, sentence(event, before, name), before]).filter(([event, words, before]) => node || searched(event, before, words).includes(wanted)).slice(0, ROWS);
    hour.textContent = lately(events, feed.trainers.values(), feed.at || Date.now() / 1000);
    said.textContent = summary(events);
    const paid = costs(events, pauses), stood = (event) => [...paid.get(event.id) ?? []].map(([who, [pause]]) => `${name(who)} ${span(pause)}`).join(", ");
    list.replaceChildren(table(["time", "what moved and why", "stood still", "method"],
      rows.map(([event, words]) => [link(`decisions/${event.id}`, clock(event.time)), words, stood(event) || "-", event.plan?.allocator ?? "-"]),
      [], "no decision yet"));
  }

  function one(event, before) {
    const plan = event.plan;
    return h("div", {}, h("p", {}, sentence(event, before, name)), h("p", {}, link("decisions", "all decisions")),
      plan ? facts([["objective", figure(plan.objective)], ["bound", plan.bound === null ? "" : `${figure(plan.bound)}: no split of these nodes is worth more`],
        ["proof", plan.proven ? "proven: no other split is better" : plan.fallback || "not proven"], ["method", `${plan.allocator}, in ${figure(plan.solve_s * 1e3, 3)} ms`]]) : "",
      plan ? table(["trainer", "before", "now", "nodes"], Object.entries(plan.allocation).map(([who, nodes]) =>
        [link(`trainer/${who}`, name(Number(who))), figure(before?.allocation?.[who]?.length ?? 0), figure(nodes.length), nodes.join(" ")]), [1, 2], "no trainer has nodes") : "",
      h("h2", {}, "What it cost"), table(["trainer", "stood still", "steps lost"], [...costs(events, pauses).get(event.id) ?? []].map(([who, [pause, lost]]) =>
        [link(`trainer/${who}`, name(who)), span(pause), figure(lost)]), [1, 2], "no trainer has stood still for it"),
      h("h2", {}, "Actions"), table(["what", "trainer", "membership", "nodes"], event.actions.map((action) =>
        [action.kind, name(action.trainer), figure(action.generation), (action.data.members ?? [action.data.node]).join(" ")]), [2], "none"));
  }

  async function read() {
    if (asking) return;
    asking = true;
    try {
      const current = feed.decisions;
      const found = await Promise.all([latest(events), get(`/v1/pauses?limit=${PAUSES}`)]);
      if (closed) return;
      [events, pauses] = found;
      known = current;
      show();
    } catch (error) {
      tell(error.message);
    } finally {
      asking = false;
    }
  }

  only.addEventListener("change", show);
  search.addEventListener("input", show);
  return { close() { closed = true; }, update() { if (feed.decisions !== known) read(); } };
}
