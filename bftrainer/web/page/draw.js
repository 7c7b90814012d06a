// Pictures on canvases: lines over an axis, sparklines, Gantt charts. Colours come from the page's theme.

export const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A trainer's colour: neighbours in number differ most, and those of like hues in how light they are. Meaning never rests on it alone. */
export const colour = (id, alpha = 1) => `hsl(${(id * 137.508) % 360} 62% ${parseFloat(theme("light")) + 5 * (id % 5) - 10}% / ${alpha})`;

/** A canvas' context, sized to its place and to the screen's pixels. */
export function context(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || canvas.parentElement?.clientWidth || 600;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  return { pen, width, height };
}

export function spark(canvas, points) {
  const { pen, width, height } = context(canvas, 22);
  const known = points.filter((value) => value !== null && value !== undefined);
  if (known.length < 2) return;
  const most = Math.max(...known) || 1;
  pen.strokeStyle = theme("link");
  pen.lineWidth = 1.5;
  pen.beginPath();
  points.forEach((value, i) => pen.lineTo((i / (points.length - 1)) * width, height - 2 - ((value ?? 0) / most) * (height - 4)));
  pen.stroke();
}

/** Round steps between two values. */
export function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  if (!Number.isFinite(step)) return [];
  const first = Math.ceil(low / step), last = Math.min(first + 2 * count, Math.floor(high / step + 1e-9)), found = new Set();
  for (let n = 0; n <= last - first; n++) found.add(+((first + n) * step).toPrecision(12));
  return [...found];
}

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400], EPOCH = 1e8;

/** Round moments (Unix seconds) between two. */
export function moments(low, high, count) {
  const raw = (high - low) / count, step = SPANS.find((one) => one >= raw) ?? Math.ceil(raw / 86400) * 86400, found = [];
  for (let at = Math.ceil(low / step) * step; at <= high && found.length <= 2 * count; at += step) found.push(at);
  return found;
}

const LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 22;

/** Axes with room for a chart; returns x and y, which place values. */
export function axes(canvas, height, [x0, x1], [y0, y1], sayX, sayY) {
  const { pen, width } = context(canvas, height);
  const x = (value) => LEFT + ((value - x0) / (x1 - x0 || 1)) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - ((value - y0) / (y1 - y0 || 1)) * (height - TOP - BOTTOM);
  pen.strokeStyle = theme("line");
  pen.fillStyle = theme("faint");
  pen.textAlign = "right";
  for (const at of ticks(y0, y1, 5)) {
    pen.beginPath(); pen.moveTo(LEFT, y(at)); pen.lineTo(width - RIGHT, y(at)); pen.stroke();
    pen.fillText(sayY(at), LEFT - 6, y(at) + 4);
  }
  pen.textAlign = "center";
  for (const at of (x0 > EPOCH ? moments : ticks)(x0, x1, Math.max(2, Math.floor(width / 130)))) {
    const half = pen.measureText(sayX(at)).width / 2;
    pen.fillText(sayX(at), Math.max(half, Math.min(x(at), width - half)), height - 6);
  }
  return { pen, x, y, width };
}

export function extent(values, zero = false) {
  let low = zero ? 0 : Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  return low === high ? [low - (zero ? 0 : 1), high + 1] : [low, high];
}

/** Lines: series of {points: [[x, y]], colour, band: [[x, low, high]], loose: dots without a line}; `marks` are values of x. */
export function lines(canvas, series, { height = 150, range, marks = [], sayX, sayY, dots = false, zero = true }) {
  const all = series.flatMap((one) => [...one.points.map((p) => p[1]), ...(one.band ?? []).flatMap((b) => [b[1], b[2]])]);
  const { pen, x, y } = axes(canvas, height, range ?? extent(series.flatMap((one) => one.points.map((p) => p[0]))),
    extent(all, zero), sayX, sayY);
  pen.strokeStyle = theme("mark");
  pen.setLineDash([3, 3]);
  for (const at of marks) { pen.beginPath(); pen.moveTo(x(at), TOP); pen.lineTo(x(at), height - BOTTOM); pen.stroke(); }
  pen.setLineDash([]);
  for (const one of series) {
    pen.strokeStyle = pen.fillStyle = one.colour;
    for (const [at, low, high] of one.band ?? []) { pen.beginPath(); pen.moveTo(x(at), y(low)); pen.lineTo(x(at), y(high)); pen.stroke(); }
    pen.lineWidth = 1.6;
    pen.beginPath();
    for (const [at, value] of one.loose ? [] : one.points) if (Number.isFinite(value)) pen.lineTo(x(at), y(value));
    pen.stroke();
    if (dots || one.loose) for (const [at, value] of one.points) { pen.beginPath(); pen.arc(x(at), y(value), 3, 0, 7); pen.fill(); }
  }
}

/** Bars of [begin, end] by row, on a time axis. */
export function gantt(canvas, rows, { range, sayX, marks = [], row = 18 }) {
  const height = rows.length * row + TOP + BOTTOM + 4;
  const { pen, x, width } = axes(canvas, height, range, [0, 0], sayX, () => "");
  rows.forEach(({ name, bars, colour: fill }, place) => {
    const top = TOP + place * row;
    pen.fillStyle = theme("faint");
    pen.textAlign = "right";
    pen.fillText(name.length > 9 ? `…${name.slice(-8)}` : name, LEFT - 6, top + 12);
    pen.fillStyle = fill;
    for (const [begin, end] of bars) pen.fillRect(x(begin), top + 2, Math.max(1.5, x(end) - x(begin)), row - 4);
  });
  pen.strokeStyle = theme("mark");
  for (const at of marks) { pen.beginPath(); pen.moveTo(x(at), TOP); pen.lineTo(x(at), height - BOTTOM); pen.stroke(); }
  return width;
}
