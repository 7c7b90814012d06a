// The page's frame: who may see it, which view the address names, keys, and light or dark.
import { clock, h, link, visible } from "./dom.js";
import { Feed, begin, get } from "./feed.js";
import { decisions } from "./decisions.js";
import { host } from "./host.js";
import { nodes } from "./nodes.js";
import { recorded } from "./record.js";
import { studies } from "./studies.js";
import { trainer } from "./trainer.js";
import { queue, trainers } from "./trainers.js";

const VIEWS = { nodes, trainers, queue, decisions, host, studies };
/** How a view is called where its address is not what people look for. */
const CALLED = { host: "main jobs" };
const main = document.getElementById("main"), notice = document.getElementById("notice");
/** The daemon tells at least every 15 s that it is there. */
const SILENT_S = 30, LOOK_MS = 2000;
let view = null, feed = null;

function tell(text) {
  notice.textContent = visible(text);
  notice.hidden = !text;
}

/** The view of the address: #/nodes, #/trainer/7, #/decisions/120, #/decisions/n3 (a node), #/studies/3. */
function open(about) {
  const [name, id] = location.hash.replace(/^#\/?/, "").split("/");
  view?.close?.();
  const make = name === "trainer" ? trainer : VIEWS[name] ?? nodes;
  for (const other of document.querySelectorAll("#views a")) {
    const here = other.hash === `#/${VIEWS[name] ? name : name === "trainer" ? "trainers" : "nodes"}`;
    if (here) other.setAttribute("aria-current", "page"); else other.removeAttribute("aria-current");
  }
  const place = h("div");
  main.replaceChildren(place);
  const number = id && /^\d{1,18}$/.test(id) ? Number(id) : null;
  view = make({ place, feed, id: number, words: number === null ? id ?? "" : "", about, tell });
  document.title = `${CALLED[name] ?? (name || "nodes")} - bftrainer`;
  view.update({ all: true, trainers: [], nodes: [], studies: [] });
}

function state() {
  const now = feed.status;
  if (!now) return;
  const problems = now.problems.length ? `: ${now.problems[0]}` : "", live = Date.now() / 1000 - feed.heard < SILENT_S, place = document.getElementById("state");
  const said = visible(`${now.state}${problems}; ${now.pool - now.unused} of ${now.pool} ${now.unit}s in use, ${now.trainers.waiting ?? 0} wait; `
    + (live ? "live" : `not live: as it was at ${clock(feed.heard)}`));
  if (place.textContent !== said) place.textContent = said;  // it is read aloud
  place.classList.toggle("bad", !live);
}

/** Draw what has changed, once in each frame of the screen, and say how long that took. */
let waiting = null;
function changed(changes, began) {
  tell("");
  const before = waiting;
  waiting = { all: changes.all || before?.all, parse: performance.now() - began + (before?.parse ?? 0) };
  for (const part of ["trainers", "nodes", "studies"]) waiting[part] = (before?.[part] ?? []).concat(changes[part]);
  if (!before) requestAnimationFrame(draw);
}

function draw() {
  const changes = waiting, began = performance.now();
  waiting = null;
  state();
  view?.update(changes);
  const root = document.documentElement.dataset;
  root.updateMs = (performance.now() - began + changes.parse).toFixed(1);
  root.seq = feed.seq;
  root.paintMs ??= performance.now().toFixed(0);
  if (feed.complete) root.wholeMs ??= performance.now().toFixed(0);
}

function light(wanted) {
  const dark = wanted ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = dark;
  view?.update({ all: true, trainers: [], nodes: [], studies: [] });
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const place = Number(event.key) - 1, names = Object.keys(VIEWS);
  if (place >= 0 && place < names.length) location.hash = `#/${names[place]}`;
  else if (event.key === "t") document.getElementById("theme").click();
  else if (event.key === "/") { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
}

async function start() {
  light(localStorage.getItem("bftrainer-theme"));
  document.getElementById("theme").addEventListener("click", () => {
    const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("bftrainer-theme", other);
    light(other);
  });
  let about;
  try {
    about = await begin();
  } catch (error) {
    tell(error.message);
    return;
  }
  addEventListener("keydown", keys);
  addEventListener("resize", () => view?.update({ all: true, trainers: [], nodes: [], studies: [] }));
  if (about.record) {
    view = recorded(await get("/record"), main);
    view.update();
    return;
  }
  Object.keys(VIEWS).forEach((name, i) => {
    const item = link(name, CALLED[name] ?? name);
    item.title = `key ${i + 1}`;
    document.getElementById("views").append(item);
  });
  feed = new Feed(changed, tell);
  addEventListener("hashchange", () => open(about));
  open(about);
  setInterval(state, LOOK_MS);
  await feed.run();
}

start();
