// Charts with one horizontal axis: what is zoomed or moved in one is zoomed and moved in all, by mouse or by buttons.
// The address says what is shown (?zoom=from..to), so that a link or a reload shows the same.

const group = document.querySelector("[data-linked]");
const tools = document.querySelector("[data-zoom-tools]");
const whole = new WeakMap(); // each chart's range as it came
let moving = false;

// A chart that waits to be drawn again, in another theme, moves with the others.
function listPlots() {
  return [...group.querySelectorAll("[data-chart].js-plotly-plot")];
}

// Plotly gives a date back as text, without a zone: it is UTC.
function toNumber(value) {
  return typeof value === "number" ? value : Date.parse(`${value.replace(" ", "T")}Z`);
}

function readRange(plot) {
  return plot.layout.xaxis.range.map(toNumber);
}

// Dates are written to the minute, places of commits and versions as they are.
function write(place) {
  return place > 1e11 ? new Date(place).toISOString().slice(0, 16) : place.toFixed(1);
}

function read(text) {
  return text.includes("T") ? Date.parse(`${text}Z`) : Number(text);
}

// A range of another axis, or of runs that are not drawn, is passed over.
function readAddress([low, high]) {
  const [from, to] = (new URL(location).searchParams.get("zoom") ?? "").split("..").map(read);
  return from < to && from < high && to > low ? [from, to] : null;
}

function writeAddress(range) {
  const address = new URL(location);
  if (range) address.searchParams.set("zoom", range.map(write).join(".."));
  else address.searchParams.delete("zoom");
  history.replaceState(history.state, "", address);
}

async function show(range, except) {
  moving = true;
  const others = listPlots().filter((plot) => plot !== except);
  await Promise.all(others.map((plot) => globalThis.Plotly.relayout(plot, { "xaxis.range": [...range] })));
  moving = false;
}

// A chart that is drawn later than the others takes the range that is shown. That is no choice of the reader's: it is
// listened to afterwards.
async function link(plot) {
  if (whole.has(plot)) return;
  whole.set(plot, readRange(plot));
  const first = listPlots().find((it) => it !== plot && whole.has(it));
  const range = first ? readRange(first) : readAddress(whole.get(plot));
  if (range && `${range}` !== `${whole.get(plot)}`) await globalThis.Plotly.relayout(plot, { "xaxis.range": range });
  plot.on("plotly_relayout", (change) => {
    if (moving || !Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
    const range = readRange(plot);
    writeAddress(change["xaxis.autorange"] ? null : range);
    show(range, plot);
  });
  if (tools) tools.hidden = false;
}

group?.addEventListener("chartdrawn", ({ target }) => link(target));
if (group) listPlots().forEach(link); // the first is drawn before this is here

const MOVES = {
  in: ([from, to]) => [from + (to - from) / 4, to - (to - from) / 4],
  out: ([from, to]) => [from - (to - from) / 2, to + (to - from) / 2],
  left: ([from, to]) => [from - (to - from) / 4, to - (to - from) / 4],
  right: ([from, to]) => [from + (to - from) / 4, to + (to - from) / 4],
};

// Beyond the runs that are drawn there is nothing to see.
function keepWithin([from, to], [low, high]) {
  const wide = Math.min(to - from, high - low);
  const start = Math.min(Math.max(from, low), high - wide);
  return [start, start + wide];
}

tools?.addEventListener("click", ({ target }) => {
  const move = target.closest("[data-zoom]")?.dataset.zoom;
  const [first] = listPlots();
  if (!move || !first || moving) return;
  const range = move === "all" ? whole.get(first) : keepWithin(MOVES[move](readRange(first)), whole.get(first));
  writeAddress(move === "all" ? null : range);
  show(range);
});
