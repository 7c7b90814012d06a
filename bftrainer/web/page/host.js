// The promise to the host: what main jobs waited, with what we held and without; and the idle nodes left to them.
import { clock, facts, figure, h, span, table } from "./dom.js";
import { get } from "./feed.js";
import { lines, theme } from "./draw.js";

const EVENTS = 500, HOUR_S = 3600;

/** Node-time in the pool and with the reader's trainers in the last hour, in a sentence; from the events, as far as they go back. */
export function usage(events, now, unit) {
  const begin = Math.max(now - HOUR_S, events[0]?.time ?? now);
  let pool = 0, held = 0, size = 0, using = 0, at = begin;
  for (const event of [...events, { time: now }]) {
    const to = Math.min(now, Math.max(begin, event.time));
    pool += size * (to - at);
    held += using * (to - at);
    at = to;
    size = event.pool_size ?? size;
    if (event.plan) using = Object.values(event.plan.allocation).reduce((sum, own) => sum + own.length, 0);
  }
  const since = begin > now - HOUR_S ? `since ${clock(begin)}` : "in the last hour";
  return `The trainers that you see used ${figure(held / HOUR_S, 3)} of ${figure(pool / HOUR_S, 3)} ${unit}-hours in the pool ${since}`
    + `${pool ? ` (${(100 * held / pool).toFixed(0)} %)` : ""}.`;
}

/** Whether main jobs waited for us, in a sentence or two. */
export function verdict({ affected, unaffected, all }) {
  const many = (one) => `${figure(one.count)} main job${one.count === 1 ? "" : "s"}`;
  const said = affected.count ? `${many(affected)} could have waited for us: half of them ${span(affected.median_s)} or less, the longest ${span(affected.most_s)}.`
    : all.count ? "No main job can have waited for us." : "No main job has started.";
  return said + (unaffected.count ? ` Half of the ${many(unaffected)} that could not waited ${span(unaffected.median_s)} or less.` : "");
}

export function host({ place, feed }) {
  const health = h("p"), used = h("p"), kept = h("div"), waits = h("div");
  place.append(h("h1", {}, "Main jobs, and whether the daemon is well"), health, used, kept, waits);

  get(`/v1/events?limit=${EVENTS}`).then((events) => { used.textContent = usage(events, feed.at || Date.now() / 1000, feed.status?.unit ?? "node"); },
    (error) => { used.textContent = `What was used is not known: ${error.message}`; });

  get("/v1/admin/impact?days=7").then(show, (error) => waits.replaceChildren(
    h("p", { class: "faint" }, `What main jobs waited is for admins: ${error.message}`)));

  function show(found) {
    const row = (name, one) => [name, figure(one.count), span(one.median_s), span(one.p90_s), span(one.p99_s), span(one.most_s)];
    const picture = h("canvas", { role: "img", "aria-label": "Median and 90th percentile of waits by day" });
    waits.replaceChildren(
      h("h2", {}, `Main jobs that started in the last ${figure(found.days)} days`), h("p", {}, verdict(found)),
      table(["", "jobs", "median", "90 of 100 within", "99 of 100 within", "longest"],
        [row("could have been affected by us", found.affected), row("could not", found.unaffected), row("all", found.all)], [1, 2, 3, 4, 5]),
      facts([["jobs that we gave nodes to", figure(found.given)], ["nodes given", figure(found.nodes)],
        ["time to give them", `${span(found.vacate.median_s)} at the median, ${span(found.vacate.most_s)} at most`],
        ["nodes that the scheduler took itself", figure(found.taken)], ["nodes given that no job used", figure(found.in_vain)]]),
      ...found.notes.map((note) => h("p", {}, note)),
      h("figure", {}, picture, h("figcaption", {}, "Waits by day: 90 of 100 jobs within (strong: could have been affected; faint: could not).")),
      h("h2", {}, "The longest waits"),
      table(["time", "job", "nodes", "which", "waited", "because"], found.worst.map((one) =>
        [clock(one.time), one.job, figure(one.nodes), one.where || "-", span(one.wait_s), one.why || one.affected]), [2, 4], "no job waited"));
    const day = (which) => found.per_day.map((one) => [one.begin, one[which].p90_s]).filter((point) => point[1] !== null);
    lines(picture, [{ points: day("unaffected"), colour: theme("faint") }, { points: day("affected"), colour: theme("link") }],
      { sayX: (at) => new Date(at * 1000).toLocaleDateString(), sayY: span, dots: true });
  }

  return {
    update() {
      const now = feed.status?.headroom;
      if (!now) return;
      health.textContent = feed.status.problems.length ? `The daemon is ${feed.status.state}: ${feed.status.problems.join("; ")}.`
        : `The daemon is ${feed.status.state}: the scheduler answers, its store and disk work, and no part tells of a problem.`;
      health.className = feed.status.problems.length ? "bad" : "good";
      kept.replaceChildren(h("h2", {}, "Idle nodes left to main jobs"), facts([["setting", now.setting],
        ["promise", now.promised ? JSON.stringify(now.promised) : ""], ["to be left", figure(now.wanted)], ["without our pilots now", figure(now.free)],
        ["at risk", now.at_risk]]));
    },
  };
}
