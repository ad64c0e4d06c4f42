// Charts with one horizontal axis: what is zoomed or moved in one is zoomed and moved in all, by mouse or by buttons.

const group = document.querySelector("[data-linked]");
const tools = document.querySelector("[data-zoom-tools]");
const whole = new WeakMap(); // each chart's range as it came
let moving = false;

function listPlots() {
  return [...group.querySelectorAll("[data-chart][data-drawn]")];
}

// Plotly gives a date back as text, without a zone: it is UTC.
function toNumber(value) {
  return typeof value === "number" ? value : Date.parse(`${value.replace(" ", "T")}Z`);
}

function readRange(plot) {
  return plot.layout.xaxis.range.map(toNumber);
}

async function show(range, except) {
  moving = true;
  const others = listPlots().filter((plot) => plot !== except);
  await Promise.all(others.map((plot) => globalThis.Plotly.relayout(plot, { "xaxis.range": [...range] })));
  moving = false;
}

// A chart that is drawn later than the others takes the range that is shown.
function link(plot) {
  if (whole.has(plot)) return;
  whole.set(plot, readRange(plot));
  const first = listPlots().find((it) => it !== plot);
  if (first) globalThis.Plotly.relayout(plot, { "xaxis.range": readRange(first) });
  plot.on("plotly_relayout", (change) => {
    if (moving || !Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
    show(readRange(plot), plot);
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

tools?.addEventListener("click", ({ target }) => {
  const move = target.closest("[data-zoom]")?.dataset.zoom;
  const [first] = listPlots();
  if (!move || !first || moving) return;
  show(move === "all" ? whole.get(first) : MOVES[move](readRange(first)));
});
