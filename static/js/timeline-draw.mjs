// Paints the timeline on a canvas and says where every phase and moment came to lie. Keeps no state.
import { BUCKETS, HEAD, ROW, RULER, duration, ticks } from "./timeline-layout.mjs";

const LETTER = 6.3; // about as wide as a letter of an 11 px face; measuring thousands of names takes longer than drawing

// Colours come from the legend and from the canvas's own styles, so that they follow the theme.
export function readColors(canvas) {
  const filled = (selector) => [...document.querySelectorAll(selector)].map((it) => getComputedStyle(it).backgroundColor);
  const own = getComputedStyle(canvas);
  return {
    phases: filled("#flame-legend [data-phase]"),
    marks: filled("#flame-legend [data-mark]"),
    ink: own.color,
    soft: own.outlineColor,
    line: own.textDecorationColor,
    accent: own.caretColor,
    ground: getComputedStyle(canvas.parentElement).backgroundColor,
    font: own.fontFamily,
  };
}

export function markKind(name) {
  return /_hit\b|_hit$/.test(name) ? 0 : /_miss$/.test(name) ? 1 : /_bypass$/.test(name) ? 2 : 3;
}

// Light or dark letters, whichever can be read on a colour that the browser wrote as "rgb(…)".
const readable = new Map();
function lettersOn(fill) {
  if (!readable.has(fill)) {
    const [r, g, b] = fill.match(/[\d.]+/g).map(Number);
    readable.set(fill, 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151d" : "#ffffff");
  }
  return readable.get(fill);
}

// `scene`: ctx, width, height, ratio, colors, data, rects, tops, folded, axis, view, scroll, matches, chosen
export function paint(scene) {
  const { ctx, width, height, ratio, colors, data, tops, axis, view, scroll } = scene;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  const scale = width / (view.to - view.from);
  const at = (time) => (axis.place(time) - view.from) * scale;
  const marks = [];
  for (const on of axis.cuts) line(ctx, colors.soft, (on - view.from) * scale, height, [2, 3]);
  const step = grid(scene, scale);
  data.lanes.forEach((lane, n) => {
    const top = tops[n] - scroll;
    if (top > height || top + HEAD + lane.rows * ROW < 0) return;
    paintShort(scene, lane, top, at);
    marks.push(...paintMarks(scene, n, top, at));
  });
  ctx.textBaseline = "middle";
  for (const it of scene.rects) paintSpan(scene, it, at, tops[it.lane] - scroll);
  for (const n of data.lanes.keys()) if (tops[n] !== tops[n - 1]) paintLabel(scene, n, tops[n] - scroll);
  ruler(scene, scale, step);
  return marks;
}

function paintSpan({ ctx, colors, data, folded, matches, chosen, width, height }, it, at, top) {
  const left = at(it.begin);
  it.x = Math.max(-2, left);
  it.w = Math.max(1, Math.min(at(it.end), width + 2) - it.x - (at(it.end) - left > 3 ? 1 : 0));
  it.y = top + HEAD + it.depth * ROW;
  it.h = ROW - 1;
  if ((it.depth && folded.has(data.lanes[it.lane].process)) || it.x > width || it.x + it.w < 0 || it.y > height || it.y + ROW < 0) {
    it.w = -9; // not under any point
    return;
  }
  const fill = colors.phases[data.names[it.name][1]];
  ctx.globalAlpha = matches && !matches.has(it.name) ? 0.18 : it.ended ? 1 : 0.4;
  ctx.fillStyle = fill;
  ctx.fillRect(it.x, it.y, it.w, it.h);
  if (!it.ended) dashed(ctx, colors.ink, it);
  if (it.w > 34) {
    ctx.globalAlpha = matches && !matches.has(it.name) ? 0.45 : 1;
    ctx.fillStyle = it.ended && !(matches && !matches.has(it.name)) ? lettersOn(fill) : colors.ink;
    ctx.font = `11px ${colors.font}`;
    const text = label(data, it);
    const letters = Math.floor((it.w - 8) / LETTER);
    ctx.fillText(text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text, it.x + 4, it.y + ROW / 2);
  }
  ctx.globalAlpha = 1;
  if (it === chosen) {
    ctx.strokeStyle = colors.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(it.x + 1, it.y + 1, Math.max(1, it.w - 2), it.h - 2);
    ctx.lineWidth = 1;
  }
}

// The outermost phase of a compile says which one it is.
export function label(data, it) {
  const compile = it.depth === 0 && data.compiles[it.key];
  const name = data.names[it.name][0];
  return compile ? `${compile[1]} ${compile[0]}` : name;
}

function dashed(ctx, color, it) {
  ctx.strokeStyle = color;
  ctx.setLineDash([3, 3]);
  ctx.strokeRect(it.x + 0.5, it.y + 0.5, it.w, it.h - 1);
  ctx.setLineDash([]);
}

function paintShort({ ctx, colors, data, folded, matches }, { short, process }, top, at) {
  ctx.fillStyle = colors.soft;
  ctx.globalAlpha = matches ? 0.2 : 0.55;
  const first = data.from_us - data.first_us;
  const bucket = Math.max(1, Math.ceil((data.to_us - data.from_us) / BUCKETS));
  for (let n = 0; n < short.length; n += 4) {
    if (short[n] && folded.has(process)) continue;
    const left = at(first + short[n + 1] * bucket);
    const right = at(first + (short[n + 1] + 1) * bucket);
    const high = Math.max(1.5, Math.min(1, short[n + 3] / bucket) * (ROW - 1));
    ctx.fillRect(left, top + HEAD + (short[n] + 1) * ROW - 1 - high, Math.max(1, right - left), high);
  }
  ctx.globalAlpha = 1;
}

function paintMarks({ ctx, colors, data, width }, number, top, at) {
  const { marks } = data.lanes[number];
  const found = [];
  for (let n = 0; n < marks.length; n += 3) {
    const x = at(marks[n + 1]);
    if (x < -5 || x > width + 5) continue;
    const name = data.names[marks[n]][0];
    ctx.fillStyle = colors.marks[markKind(name)];
    ctx.beginPath();
    ctx.moveTo(x - 4, top + HEAD - 9);
    ctx.lineTo(x + 4, top + HEAD - 9);
    ctx.lineTo(x, top + HEAD - 2);
    ctx.fill();
    found.push({ x: x - 4, y: top + HEAD - 10, w: 8, h: 9, mark: name, count: marks[n + 2], begin: marks[n + 1], lane: number });
  }
  return found;
}

// The label of a process that can be folded says whether it is.
export function laneLabel(data, folded, n) {
  const lane = data.lanes[n];
  if (data.lanes.every((other) => other.process === lane.process)) return lane.label;
  if (folded.has(lane.process)) return `▸ ${lane.process}`;
  return n && data.lanes[n - 1].process === lane.process ? lane.label : `▾ ${lane.label}`;
}

function paintLabel({ ctx, colors, data, folded, width, height }, n, top) {
  const text = laneLabel(data, folded, n);
  if (top > height || top < -HEAD) return;
  line(ctx, colors.line, 0, 0, [], top, width);
  ctx.font = `600 11px ${colors.font}`;
  ctx.fillStyle = colors.ground;
  ctx.fillRect(2, top + 2, text.length * 6.6 + 10, 16);
  ctx.fillStyle = colors.ink;
  ctx.fillText(text, 6, top + 10);
}

function line(ctx, color, x, height, dash, y = 0, width = 0) {
  ctx.strokeStyle = color;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(Math.round(x) + 0.5, Math.round(y) + 0.5);
  ctx.lineTo(Math.round(x + width) + 0.5, Math.round(y + height) + 0.5);
  ctx.stroke();
  ctx.setLineDash([]);
}

function grid({ ctx, colors, view, width, height }, scale) {
  const found = ticks(view, width / 110);
  for (const on of found.found) line(ctx, colors.line, (on - view.from) * scale, height, []);
  return found;
}

function ruler({ ctx, colors, axis, view, width }, scale, { step, found }) {
  ctx.fillStyle = colors.ground;
  ctx.fillRect(0, 0, width, RULER);
  line(ctx, colors.line, 0, 0, [], RULER, width);
  ctx.fillStyle = colors.soft;
  ctx.font = `11px ${colors.font}`;
  for (const on of found) ctx.fillText(duration(axis.time(on), step), (on - view.from) * scale + 4, RULER / 2);
}
