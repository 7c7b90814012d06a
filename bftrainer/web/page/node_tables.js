// Who has the nodes, and which are not ours, in tables: what the map's colours mean, without pointing at cells.
import { clock, figure, h, link, table } from "./dom.js";
import { colour } from "./draw.js";

const HOLDERS = 12, GROUPS = 12, NAMED = 4;

/** The trainers that have nodes, those with most first: [id or null (other users'), user, nodes, of them starting]. */
export function byHolder(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!row.role) continue;
    const one = found.get(row.id) ?? found.set(row.id, { id: row.id, name: row.trainer, user: row.user, nodes: 0, starting: 0 }).get(row.id);
    one.nodes += 1;
    one.starting += row.role === "joining" ? 1 : 0;
  }
  return [...found.values()].sort((a, b) => b.nodes - a.nodes || a.id - b.id);
}

/** Why a node is not ours, in words: the main job that has it, if one is known. */
export const because = ({ job, why }) => (job && !why.includes(job) ? `job ${job}${why ? ` (${why})` : ""}` : why);

/** Why a node that is idle is not in the pool, by where it is in its life with us. */
const SOON = { clearing: "its pilot has ended, and is cleared away", releasing: "its workers leave" };
const IN_POOL = new Set([undefined, "free", "ordered", "starting", "up"]);

/** Whether a trainer can have a node now; of the past no phase is known. */
export const pooled = ({ state, phase }) => state === "idle" && IN_POOL.has(phase);

const lastly = (one) => one.state === "the main scheduler's";

/** The nodes that no trainer can have, by why: those that nobody uses first, those of main jobs last, then the largest groups. */
export function notOurs(rows) {
  const found = new Map();
  for (const row of rows) {
    if (row.role || pooled(row)) continue;
    const state = row.phase === "quarantined" ? "in quarantine" : row.state === "idle" || row.state === "unused" ? "unused" : "the main scheduler's";
    const why = because(row) || (row.state === "idle" ? SOON[row.phase] ?? "idle since a moment: it joins soon" : ""), key = `${state}\n${why}`;
    const one = found.get(key) ?? found.set(key, { state, why, job: row.job, names: [], ends: [], open: 0 }).get(key);
    one.names.push(row.node);
    if (row.until) one.ends.push(row.until); else one.open += 1;
  }
  return [...found.values()].sort((a, b) => lastly(a) - lastly(b) || !!a.job - !!b.job || b.names.length - a.names.length);
}

/** Until when nodes stay as they are: a main job may end before its time limit, and so is said to end at the latest. */
export function until({ ends, open, job }) {
  if (!ends.length) return job ? "not known: the scheduler tells no time limit of it" : "not known";
  const first = ends.reduce((a, b) => Math.min(a, b)), end = ends.reduce((a, b) => Math.max(a, b));
  return `${clock(first)}${end > first ? ` to ${clock(end)}` : ""}${job ? " at the latest" : ""}${open ? `; of ${figure(open)} not known` : ""}`;
}

function swatch(id) {
  const key = h("span", { class: "key" });
  if (id !== null) key.style.background = colour(id);
  return key;
}

/** Both tables. */
export function nodeTables(feed, unit) {
  const rows = [...feed.nodes.values()], holders = byHolder(rows), groups = notOurs(rows), users = new Map();
  for (const one of holders) users.set(one.user ?? "other users", (users.get(one.user ?? "other users") ?? 0) + one.nodes);
  const shares = [...users].sort((a, b) => b[1] - a[1]).slice(0, HOLDERS).map(([user, count]) => `${user} ${figure(count)}`).join(", ");
  const name = (one) => h("span", {}, swatch(one.id), " ", one.id === null ? "other users' trainers" : link(`trainer/${one.id}`, one.name));
  const more = (all, most, what) => (all.length > most ? h("p", { class: "faint" }, `${figure(all.length - most)} more ${what}`) : "");
  return [h("h2", {}, `Who has ${unit}s`), shares ? h("p", {}, `By user: ${shares}.`) : "",
    table(["trainer", "user", `${unit}s`, "of them starting"], holders.slice(0, HOLDERS).map((one) =>
      [name(one), one.user ?? "-", figure(one.nodes), figure(one.starting)]), [2, 3], `no trainer has a ${unit}`), more(holders, HOLDERS, "trainers"),
    h("h2", {}, `Which ${unit}s are not ours, and why`),
    table(["", `${unit}s`, "why", "until", "which"], groups.slice(0, GROUPS).map((one) => [one.state, figure(one.names.length), one.why || (lastly(one) ? "a main job has them" : "-"), until(one),
      `${one.names.slice(0, NAMED).join(" ")}${one.names.length > NAMED ? ` and ${figure(one.names.length - NAMED)} more` : ""}`]), [1], "all are in the pool"), more(groups, GROUPS, "groups")];
}
