// The timeline of a run: zoom, move, choose, open. What was drawn last is scaled until the server has sent the window
// that is looked at; the address keeps that window, so a shared link shows the same.
import { duration, clamp, hit, makeAxis, stackLanes, unfold, zoom } from "./timeline-layout.mjs";
import { listen } from "./timeline-input.mjs";
import { paint, readColors } from "./timeline-draw.mjs";

const WAIT_MS = 120;
const get = (id) => document.getElementById(id);
const box = get("flame");
const canvas = box.querySelector("canvas");
const ctx = canvas.getContext("2d");
const tip = get("flame-tip");
let data = JSON.parse(get("flame-data").textContent);
const length = Math.max(1, data.last_us - data.first_us);
const stack = stackLanes(data.lanes);
const known = { idle: data.busy };
let axis = makeAxis(data.busy, length);
let view = { from: axis.place(data.from_us - data.first_us), to: axis.place(data.to_us - data.first_us) };
let [rects, marks, scroll, chosen, matches, colors] = [unfold(data.lanes), [], 0, null, null, null];
let [frame, timer, asked] = [0, 0, null];

function draw() {
  frame = 0;
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  colors ??= readColors(canvas);
  marks = paint({ ctx, width, height, ratio, colors, data, rects, tops: stack.tops, axis, view, scroll, matches, chosen });
  const shown = axis.time(view.to) - axis.time(view.from);
  get("flame-status").textContent = `${duration(shown)} of ${duration(length)}, from ${duration(axis.time(view.from))}${data.is_coarse && box.dataset.window ? "; zoom in for the shortest" : ""}`;
  canvas.dataset.drawn = `${Math.round(view.from)}-${Math.round(view.to)}`;
}

function redraw() {
  frame ||= requestAnimationFrame(draw);
}

function look(next) {
  view = next;
  hideTip();
  redraw();
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT_MS);
}

const real = (on) => data.first_us + Math.round(axis.time(on));

function remember() {
  const address = new URL(location.href);
  const all = view.from <= 0 && view.to >= axis.total;
  for (const [name, on] of [["from", view.from], ["to", view.to]]) {
    if (all) address.searchParams.delete(name);
    else address.searchParams.set(name, real(on));
  }
  if (known.idle.length) address.searchParams.set("idle", "1");
  else address.searchParams.delete("idle");
  history.replaceState(null, "", address);
  const share = document.querySelector("#share input");
  if (share) share.value = address.href;
}

// Half a window more on both sides, so that moving shows what is there before the next answer.
async function ask() {
  if (!box.dataset.window) return; // a copy of static files: what is drawn is scaled
  remember();
  const more = (view.to - view.from) / 2;
  const from = real(Math.max(0, view.from - more));
  const to = Math.max(from + 1, real(Math.min(axis.total, view.to + more)));
  const perPixel = (view.to - view.from) / canvas.clientWidth;
  const width = Math.max(100, Math.min(100_000, Math.round((to - from) / perPixel)));
  asked?.abort();
  asked = new AbortController();
  try {
    const query = new URLSearchParams({ from_us: from, to_us: to, width });
    const answer = await fetch(`${box.dataset.window}?${query}`, { signal: asked.signal, credentials: "same-origin" });
    const found = (await answer.json()).data;
    if (!answer.ok || !found) return;
    const same = chosen;
    data = found;
    rects = unfold(data.lanes);
    chosen = same && rects.find((it) => it.begin === same.begin && it.depth === same.depth && it.lane === same.lane);
    search();
  } catch (error) {
    if (error.name !== "AbortError") get("flame-status").textContent = "The server did not answer; what is drawn may be coarse.";
  }
}

function say(it) {
  if (it.mark) return [it.count > 1 ? `${it.mark} × ${it.count}` : it.mark, `at ${duration(it.begin)}`];
  const [id, name] = data.compiles[it.key] ?? [null, null];
  const lines = [data.names[it.name][0], id ? `compile ${id}${name ? ` of ${name}` : ""}` : "no compile"];
  const took = it.end - it.begin;
  const above = it.parent && it.ended && it.parent.ended && it.parent.end > it.parent.begin;
  const share = above ? `, ${Math.round((100 * took) / (it.parent.end - it.parent.begin))} % of ${data.names[it.parent.name][0]}` : "";
  lines.push(it.ended ? `${duration(took)}${share}` : "its end was not recorded", `from ${duration(it.begin)}`);
  return lines;
}

function showTip(it, x, y) {
  const [first, ...rest] = say(it);
  const name = Object.assign(document.createElement("b"), { textContent: first });
  tip.replaceChildren(name, ...rest.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  tip.hidden = false;
  tip.style.left = `${Math.max(2, Math.min(x + 12, box.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + 16 + tip.offsetHeight > box.clientHeight ? Math.max(2, y - tip.offsetHeight - 8) : y + 16}px`;
}

function hideTip() {
  tip.hidden = true;
}

function open(it) {
  if (it?.key) document.dispatchEvent(new CustomEvent("openpage", { detail: `${box.dataset.compile}${it.key}` }));
}

function search() {
  const wanted = get("flame-search").value.trim().toLowerCase();
  matches = wanted ? new Set(data.names.flatMap(([name], n) => (name.toLowerCase().includes(wanted) ? [n] : []))) : null;
  redraw();
}

// From phase to phase: along time for left and right, to its parent or first child for up and down.
function choose(key) {
  const seen = rects.filter((it) => it.w > 0);
  const row = chosen && seen.filter((it) => it.lane === chosen.lane && it.depth === chosen.depth);
  const at = row ? row.indexOf(chosen) : -1;
  const next = {
    ArrowLeft: () => row[at - 1],
    ArrowRight: () => row[at + 1],
    ArrowUp: () => chosen.parent,
    ArrowDown: () => seen.find((it) => it.parent === chosen),
  }[key];
  chosen = (chosen ? next() : seen[0]) ?? chosen ?? null;
  if (!chosen) return;
  get("flame-said").textContent = say(chosen).join(", ");
  draw();
  showTip(chosen, Math.max(0, chosen.x), chosen.y);
}

function slide(dy) {
  scroll = Math.max(0, Math.min(stack.height - canvas.clientHeight, scroll + dy));
  redraw();
}

async function toggleIdle(button) {
  if (!box.dataset.window) return;
  const [from, to] = [axis.time(view.from), axis.time(view.to)];
  const all = view.from <= 0 && view.to >= axis.total;
  if (known.idle.length) known.idle = [];
  else {
    const answer = await fetch(`${box.dataset.window}?idle=1&width=1`, { credentials: "same-origin" });
    known.idle = (await answer.json()).data.busy;
  }
  axis = makeAxis(known.idle, length);
  button.setAttribute("aria-pressed", String(known.idle.length > 0));
  look(all ? { from: 0, to: axis.total } : clamp(axis.place(from), Math.max(20, axis.place(to) - axis.place(from)), axis.total));
}

const around = (x) => view.from + (x / canvas.clientWidth) * (view.to - view.from);
const by = (factor, x = canvas.clientWidth / 2) => look(zoom(view, factor, around(x), axis.total));
const move = (share) => look(clamp(view.from + share * (view.to - view.from), view.to - view.from, axis.total));
const all = () => look({ from: 0, to: axis.total });
const under = (x, y) => hit(marks, x, y) ?? hit(rects, x, y);

function hover(x, y) {
  const it = under(x, y);
  canvas.style.cursor = it?.key ? "pointer" : "";
  if (it) showTip(it, x, y);
  else hideTip();
}

// A finger has no hovering: its first touch says what it is, the second opens it.
function press(x, y, touch) {
  const it = under(x, y);
  if (!touch || (it && it === chosen)) return open(it);
  chosen = it?.mark ? null : it;
  hover(x, y);
  return redraw();
}

function repaint() {
  colors = null;
  redraw();
}

listen(canvas, { all, by, choose, enter: () => open(chosen), hover, leave: hideTip, move, press, slide, toggleIdle });
get("flame-search").addEventListener("input", search);
new ResizeObserver(redraw).observe(canvas);
document.addEventListener("themechange", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.querySelector("[data-flame=idle]")?.setAttribute("aria-pressed", String(known.idle.length > 0));
draw();
