// The timeline of a run: zoom, move, choose, fold, details. What was drawn last is scaled until the server has sent the window
// that is looked at; the address keeps that window, so a shared link shows the same.
import { HEAD, duration, clamp, hit, makeAxis, stackLanes, unfold, zoom } from "./timeline-layout.mjs";
import { listen } from "./timeline-input.mjs";
import { laneLabel, paint, readColors } from "./timeline-draw.mjs";

const WAIT_MS = 120;
const MAX_HEIGHT = 620; // as in app/timeline/pages.py
const get = (id) => document.getElementById(id);
const box = get("flame");
const canvas = box.querySelector("canvas");
const ctx = canvas.getContext("2d");
const tip = get("flame-tip");
let data = JSON.parse(get("flame-data").textContent);
const length = Math.max(1, data.last_us - data.first_us);
const processes = [...new Set(data.lanes.map((lane) => lane.process))];
const folded = new Set(processes.slice(1)); // the first compiled longest
const details = get("flame-details");
const { busy } = data;
let idle = box.dataset.idle === "shown";
let stack = stackLanes(data.lanes, folded);
let axis = makeAxis(idle ? [] : busy, length);
const placed = ([from, to]) => ({ from: axis.place(from - data.first_us), to: axis.place(to - data.first_us) });
let view = placed([Number(box.dataset.from), Number(box.dataset.to)]);
let [rects, marks, scroll, chosen, matches, colors] = [unfold(data.lanes), [], 0, null, null, null];
let [frame, timer, asked] = [0, 0, null];
let linked = /^#at=(\d+)\.(\d+)\.(\d+)$/.exec(location.hash)?.slice(1).map(Number); // of a link to a phase, until it is drawn

function draw() {
  frame = 0;
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  colors ??= readColors(canvas);
  marks = paint({ ctx, width, height, ratio, colors, data, rects, tops: stack.tops, folded, axis, view, scroll, matches, chosen });
  const shown = axis.time(view.to) - axis.time(view.from);
  get("flame-status").textContent = `${duration(shown)} of ${duration(length)}, from ${duration(axis.time(view.from))}${data.is_coarse && box.dataset.window ? "; zoom in for the shortest" : ""}`;
  canvas.dataset.drawn = `${Math.round(view.from)}-${Math.round(view.to)}`;
}

function redraw() {
  if (!frame) frame = requestAnimationFrame(draw);
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
  if (!box.dataset.window) return; // a copy of static files
  const address = new URL(location.href);
  const opening = placed(box.dataset.opening.split(" ").map(Number));
  const isOpening = Math.abs(view.from - opening.from) < 1 && Math.abs(view.to - opening.to) < 1;
  for (const [name, on] of [["from", view.from], ["to", view.to]]) {
    if (isOpening) address.searchParams.delete(name);
    else address.searchParams.set(name, real(on));
  }
  if (idle) address.searchParams.set("idle", "shown");
  else address.searchParams.delete("idle");
  if (!linked) address.hash = chosen ? `at=${chosen.begin}.${chosen.lane}.${chosen.depth}` : "";
  history.replaceState(null, "", address);
}

// A link names a phase by its start, lane and depth; a short one is drawn once the server has sent the window.
function openLinked() {
  const it = linked && rects.find((rect) => [rect.begin, rect.lane, rect.depth].every((part, n) => part === linked[n]));
  if (!it) return;
  [chosen, linked] = [it, null];
  showDetails(it);
  redraw();
}

// Half a window more on both sides, so that moving shows what is there before the next answer.
async function ask() {
  remember();
  if (!box.dataset.window) return; // a copy of static files: what is drawn is scaled
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
    openLinked();
    search();
  } catch (error) {
    if (error.name !== "AbortError") get("flame-status").textContent = "The server did not answer; what is drawn may be coarse.";
  }
}

function say(it) {
  if (it.mark) return [it.count > 1 ? `${it.mark} × ${it.count}` : it.mark, `at ${duration(it.begin)}`];
  const [id, name] = data.compiles[it.key] ?? [null, null];
  const lines = [data.names[it.name][0], id ? `${name} ${id}` : "no compile"];
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

// A copy of static files names the file of each page that it has.
function findPage(address) {
  const files = get("site-files");
  return files ? JSON.parse(files.textContent)[address] : address;
}

// What is known of a phase or an instant, below the timeline, with a link to its compile.
function showDetails(it) {
  remember();
  if (!it) return;
  const parts = [["Process", data.lanes[it.lane].label]];
  if (it.mark) parts.push(["At", duration(it.begin)], ["Count", String(it.count)]);
  else {
    const { parent } = it;
    const isKnown = it.ended && parent?.ended && parent.end > parent.begin;
    const share = isKnown ? `, ${Math.round((100 * (it.end - it.begin)) / (parent.end - parent.begin))}% of ${data.names[parent.name][0]}` : "";
    parts.push(["Phase", phases[data.names[it.name][1]]], ["Start", duration(it.begin)]);
    parts.push(["Duration", it.ended ? `${duration(it.end - it.begin)}${share}` : "end not recorded"]);
    if (data.compiles[it.key]) parts.push(["Compile", data.compiles[it.key][1]]);
  }
  details.querySelector("h3").textContent = it.mark ?? data.names[it.name][0];
  details.querySelector("dl").replaceChildren(...parts.map(pair));
  const link = details.querySelector("a");
  const address = it.key && findPage(`${box.dataset.compile}${it.key}`);
  link.hidden = !address;
  if (address) {
    link.href = address;
    link.textContent = `Open compile ${data.compiles[it.key]?.[0] ?? ""}`;
  }
  details.hidden = false;
  hideTip();
  details.scrollIntoView({ block: "nearest" });
  (address ? link : details.querySelector("[data-close]")).focus({ preventScroll: true });
}

function pair([label, value]) {
  const row = document.createElement("div");
  row.append(...[["dt", label], ["dd", value]].map(([tag, textContent]) => Object.assign(document.createElement(tag), { textContent })));
  return row;
}

function closeDetails() {
  if (details.hidden) return hideTip();
  details.hidden = true;
  return canvas.focus({ preventScroll: true });
}

function fold(names, isFolded) {
  for (const name of names) (isFolded ? folded.add(name) : folded.delete(name));
  stack = stackLanes(data.lanes, folded);
  const space = box.querySelector(".flame__space");
  space.setAttribute("height", Math.min(MAX_HEIGHT, Math.max(stack.height, Number(space.getAttribute("height")))));
  const button = document.querySelector("[data-flame=fold]");
  button?.setAttribute("aria-pressed", String(!folded.size));
  hideTip();
  slide(0);
}

const foldAll = () => fold(processes, !folded.size);
function foldChosen() {
  const name = data.lanes[chosen?.lane ?? 0].process;
  if (processes.length > 1) fold([name], !folded.has(name));
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
  scroll = Math.max(0, Math.min(stack.height - box.clientHeight, scroll + dy));
  redraw();
}

function toggleIdle(button) {
  const [from, to] = [axis.time(view.from), axis.time(view.to)];
  const all = view.from <= 0 && view.to >= axis.total;
  idle = !idle;
  axis = makeAxis(idle ? [] : busy, length);
  button.setAttribute("aria-pressed", String(idle));
  look(all ? { from: 0, to: axis.total } : clamp(axis.place(from), Math.max(20, axis.place(to) - axis.place(from)), axis.total));
}

const around = (x) => view.from + (x / canvas.clientWidth) * (view.to - view.from);
const by = (factor, x = canvas.clientWidth / 2) => look(zoom(view, factor, around(x), axis.total));
const move = (share) => look(clamp(view.from + share * (view.to - view.from), view.to - view.from, axis.total));
const all = () => look({ from: 0, to: axis.total });
const under = (x, y) => hit(marks, x, y) ?? hit(rects, x, y);

function hover(x, y) {
  const it = under(x, y);
  canvas.style.cursor = it || laneUnder(x, y) ? "pointer" : "";
  if (it) showTip(it, x, y);
  else hideTip();
}

// The process whose label lies under a point.
function laneUnder(x, y) {
  const n = stack.tops.findIndex((top) => y >= top - scroll && y < top - scroll + HEAD - 10);
  return processes.length > 1 && n >= 0 && x < laneLabel(data, folded, n).length * 6.6 + 12 ? data.lanes[n].process : null;
}

function press(x, y) {
  const it = under(x, y);
  const name = it ? null : laneUnder(x, y);
  if (name) return fold([name], !folded.has(name));
  [chosen, linked] = [it?.mark ? null : it, null];
  showDetails(it);
  return redraw();
}

function repaint() {
  colors = null;
  redraw();
}

const phases = [...document.querySelectorAll("#flame-legend [data-phase]")].map((dot) => dot.parentElement.textContent.trim());
listen(canvas, { all, by, choose, enter: () => showDetails(chosen), close: closeDetails, foldAll, foldChosen, hover, leave: hideTip, move, press, slide, toggleIdle });
details.querySelector("[data-close]").addEventListener("click", closeDetails);
details.addEventListener("keydown", (event) => event.key === "Escape" && closeDetails());
get("flame-search").addEventListener("input", search);
new ResizeObserver(redraw).observe(canvas);
document.addEventListener("themechange", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.querySelector("[data-flame=idle]").setAttribute("aria-pressed", String(idle));
draw();
openLinked();
if (linked) ask();
