// What the daemon tells: one state, then changes. Kept here in maps, with a bounded history of each trainer.

const KEYS = { trainers: "id", nodes: "node", studies: "id" };
const KEPT = 60;
/** Where the last part of a state begins: nodes come before it, and can be drawn before many trainers have come. */
const LAST = ', "trainers": [';
const STORED = "bftrainer-session";

/** Ask our server; raises an Error with the daemon's own words. */
export async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { Authorization: `Bearer ${localStorage.getItem(STORED)}` } });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.error || `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

export const get = async (path) => (await ask(path)).json();

/** Make the token of the address a session, and take it out of the address. */
export async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", "#/nodes");
    const answer = await fetch("/session", { method: "POST", body: JSON.stringify({ token }) });
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error);
    localStorage.setItem(STORED, told.session);
  }
  return get("/about");
}

export class Feed {
  constructor(changed, lost) {
    Object.assign(this, { changed, lost, seq: -1, complete: false, status: null, decisions: 0, courses: new Map(), at: 0, heard: 0 });
    this.trainers = new Map(); this.nodes = new Map(); this.studies = new Map();
  }

  /** Follow the daemon for ever; ask anew when it says so, or after a while when it is gone. */
  async run() {
    for (let wait = 500; ; wait = Math.min(15000, wait * 2)) {
      try {
        const answer = await ask("/v1/feed");
        if (await this.read(answer.body.getReader(), () => { wait = 500; })) continue;
        this.lost("The daemon has ended the stream; it is asked again.");
      } catch (error) {
        this.lost(error.message);
        if (error.status === 401) return;
      }
      await new Promise((go) => setTimeout(go, wait));
    }
  }

  /** Take in events until the stream ends; true if the daemon wants to be asked again at once. */
  async read(reader, alive) {
    const decoder = new TextDecoder();
    let pieces = [];  // of the event that comes; not one text, which would be copied with every piece
    this.complete = false;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return false;
      this.heard = Date.now() / 1000;  // also if that tells only that the daemon is there
      let text = decoder.decode(value, { stream: true });
      if (pieces.at(-1)?.endsWith("\n")) text = pieces.pop() + text;
      for (let end; (end = text.indexOf("\n\n")) >= 0;) {
        const block = pieces.join("") + text.slice(0, end);
        text = text.slice(end + 2);
        pieces = [];
        if (!block.startsWith("event: ")) continue;
        const line = block.indexOf("\n"), name = block.slice(7, line);
        if (name === "again") { await reader.cancel(); return true; }
        alive();
        this.complete = true;
        this.take(name, JSON.parse(block.slice(line + 7)));
      }
      const seam = (pieces.at(-1) ?? "").slice(-LAST.length) + text;
      if (text) pieces.push(text);
      if (!this.complete && seam.includes(LAST)) pieces = [this.early(pieces.join(""))];
    }
  }

  /** Take in what of a state has come before its trainers; return the rest of it as a change. */
  early(text) {
    if (!text.startsWith("event: state\n")) return text;
    const end = text.indexOf(LAST), told = JSON.parse(`${text.slice(text.indexOf("{"), end)}}`);
    this.take("state", told);
    return `event: change\ndata: {"seq": ${told.seq}, "time": ${told.time}${text.slice(end)}`;
  }

  take(name, told) {
    const began = performance.now(), changes = { all: name === "state" };
    Object.assign(this, { seq: told.seq, at: told.time, status: told.status ?? this.status,
      decisions: told.decisions ?? this.decisions });
    for (const [part, key] of Object.entries(KEYS)) {
      if (changes.all) this[part] = new Map();
      for (const row of told[part] ?? []) {
        if (part === "trainers") this.note(row, told.time);
        this[part].set(row[key], row);
      }
      for (const gone of told.gone?.[part] ?? []) this[part].delete(gone);
      changes[part] = (told[part] ?? []).map((row) => row[key]).concat(told.gone?.[part] ?? []);
    }
    for (const id of this.courses.keys()) if (!this.trainers.has(id)) this.courses.delete(id);
    this.changed(changes, began);
  }

  /** Keep the last points of a trainer's course: [time, nodes, rate]. */
  note(row, time) {
    const course = this.courses.get(row.id) ?? [];
    if (!course.length && !row.nodes.length) return;
    course.push([time, row.members.length, row.rate]);
    if (course.length > KEPT) course.shift();
    this.courses.set(row.id, course);
  }
}
