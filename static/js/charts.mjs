// Draws the figures that the page carries as JSON. Colours come from the stylesheet: a trace names one in meta.color
// ("series-1", "phase-dynamo", "state-bad"), and a change of theme draws again.

// A custom property reads as it was written, light-dark() and all; an element that uses it tells the colour.
const probe = document.body.appendChild(document.createElement("span"));
probe.hidden = true;

// Plotly draws its label inside the chart, which cuts what is wider or higher than a small one: ours lies on the page.
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "chart__tip";
tip.hidden = true;

const MAX_WORDS_NARROW = 4;
const MAX_DATES_NARROW = 3;

function color(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function paint(figure) {
  const text = color("ink-soft");
  const line = color("line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, automargin: true };
  const layout = { ...figure.layout };
  layout.font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: text, ...layout.font };
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  layout.colorway = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => color(`series-${n}`));
  layout.hoverlabel = { bgcolor: color("card"), bordercolor: line, font: { color: color("ink") }, align: "left" };
  layout.autosize = true;
  // On a phone words above a chart would lie on each other; the page has them in a table as well.
  if (innerWidth < 640) layout.annotations = layout.annotations?.slice(-2);
  layout.shapes = layout.shapes?.map((it) => ({ ...it, line: { ...it.line, color: text } }));
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) layout[key] = { ...axis, ...layout[key] };
  }
  if (innerWidth < 640 && layout.xaxis?.tickangle === 0) thin(layout.xaxis);
  // Plotly counts on narrower dates than these: on a phone they would touch.
  if (innerWidth < 640 && layout.xaxis?.type === "date") layout.xaxis = { ...layout.xaxis, nticks: MAX_DATES_NARROW };
  const data = figure.data.map(place).map((trace) => {
    const named = trace.meta?.color;
    if (!named) return trace;
    const shown = color(named);
    return { ...trace, marker: { ...trace.marker, color: shown }, line: { ...trace.line, color: shown } };
  });
  return { data, layout };
}

// On a phone only so many words fit beside each other below a chart.
function thin(axis) {
  const step = Math.ceil((axis.ticktext?.length ?? 0) / MAX_WORDS_NARROW);
  if (step > 1) for (const key of ["tickvals", "ticktext"]) axis[key] = axis[key].filter((_, at) => at % step === 0);
}

function read(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

// Charts of the same runs share their times, addresses and words: x is then a place in the lists that meta.points names.
function place(trace) {
  if (!trace.meta?.points) return trace;
  const { x, runs, text } = read(trace.meta.points);
  // None in a file; a trace may bring its own.
  const links = runs && !trace.customdata && { customdata: trace.x.map((at) => `/runs/${runs[at]}`) };
  return { ...trace, x: trace.x.map((at) => x[at]), ...links, ...(text && { text: trace.x.map((at) => text[at]) }) };
}

export function draw(plot, { keepRange = false } = {}) {
  const { data, layout } = paint(read(plot.dataset.chart));
  if (keepRange && plot.layout?.xaxis?.range) layout.xaxis = { ...layout.xaxis, range: [...plot.layout.xaxis.range] };
  const config = { displayModeBar: false, responsive: true, showTips: false, doubleClick: "reset" };
  const fresh = !plot.classList.contains("js-plotly-plot");
  if (fresh) plot.replaceChildren();
  globalThis.Plotly.react(plot, data, layout, config);
  if (fresh) {
    // A finger scrolls the page, and a tap is a click: Plotly would take both for a drag. Zooming has buttons.
    plot.addEventListener("touchstart", (event) => event.stopPropagation(), { capture: true, passive: true });
    plot.on("plotly_hover", ({ event }) => showTip(plot, event));
    plot.on("plotly_unhover", hideTip);
    plot.on("plotly_click", (event) => follow(event.points[0]?.customdata));
    if (!plot.closest("[data-linked]")) keepZoom(plot); // those have trends.mjs
  }
  plot.dataset.drawn = "yes";
  if (fresh) plot.dispatchEvent(new Event("chartdrawn", { bubbles: true }));
}

// What is zoomed in stands after the # of the address, so that a link or a reload shows the same: #zoom=CHART:from..to,CHART:…
const ZOOM = /^([\w-]+):(.+?)\.\.(.+)$/;
function readZooms() {
  const text = decodeURIComponent(/^#zoom=(.*)$/.exec(location.hash)?.[1] ?? "");
  return new Map(text.split(",").map((it) => ZOOM.exec(it)).filter(Boolean).map(([, id, from, to]) => [id, [from, to]]));
}

// Plotly gives a date back as text, or as it came.
function writeEnd(value) {
  if (typeof value === "string") return value.slice(0, 19).replace(" ", "T");
  return Math.abs(value) > 1e11 ? new Date(value).toISOString().slice(0, 19) : String(Number(value.toPrecision(6)));
}

function writeZoom(id, range) {
  const zooms = readZooms();
  if (range) zooms.set(id, range.map(writeEnd));
  else if (!zooms.delete(id)) return; // what else stands after the # stays
  const text = [...zooms].map(([key, ends]) => `${key}:${ends.join("..")}`).join(",");
  history.replaceState(history.state, "", text ? `#zoom=${text}` : location.pathname + location.search);
}

// A range of another kind of axis is passed over.
function findZoom(plot, id) {
  const isDate = plot.layout.xaxis.type === "date";
  const ends = (readZooms().get(id) ?? []).map((it) => (isDate ? Date.parse(`${it}Z`) : Number(it)));
  return ends[0] < ends[1] ? (isDate ? readZooms().get(id) : ends) : null;
}

function keepZoom(plot) {
  const id = plot.dataset.chart.replace(/-data$/, "");
  const whole = [...(plot.layout.xaxis?.range ?? [])];
  const apply = () => {
    const range = plot.layout.xaxis?.range && findZoom(plot, id);
    if (range) globalThis.Plotly.relayout(plot, { "xaxis.range": range });
    return range;
  };
  if (apply() && readZooms().keys().next().value === id) plot.closest("figure")?.scrollIntoView();
  addEventListener("hashchange", () => {
    if (!apply() && `${plot.layout.xaxis?.range}` !== `${whole}`) globalThis.Plotly.relayout(plot, { "xaxis.range": [...whole] });
  });
  plot.on("plotly_relayout", (change) => {
    if (!Object.keys(change).some((key) => key.startsWith("xaxis"))) return;
    const { range } = plot.layout.xaxis;
    writeZoom(id, change["xaxis.autorange"] || `${range}` === `${whole}` ? null : range);
  });
}

// The words are Plotly's own, a line an element; the place is beside the pointer, inside the window.
function showTip(plot, { clientX, clientY }) {
  const lines = [...plot.querySelectorAll(".hoverlayer .hovertext text")].flatMap((text) => {
    const parts = [...text.querySelectorAll("tspan.line")];
    return (parts.length ? parts : [text]).map((part) => part.textContent).filter(Boolean);
  });
  tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
  tip.hidden = !lines.length;
  // The body's width is without the room that is kept for a scroll bar.
  const right = document.body.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(clientX + 12, right))}px`;
  const below = clientY + 16;
  tip.style.top = `${below + tip.offsetHeight > innerHeight ? Math.max(4, clientY - tip.offsetHeight - 10) : below}px`;
}

function hideTip() {
  tip.hidden = true;
}
addEventListener("scroll", hideTip, { passive: true, capture: true });

// A point may carry an address of this site in customdata[0]: a click goes there.
function follow(custom) {
  const address = Array.isArray(custom) ? custom[0] : custom;
  if (typeof address === "string" && /^\/(?!\/)/.test(address)) {
    document.dispatchEvent(new CustomEvent("openpage", { detail: address }));
  }
}

// Safari has no requestIdleCallback.
const whenIdle = globalThis.requestIdleCallback ?? ((task) => setTimeout(task, 50));

export function drawAll(within = document, how = {}) {
  // What is folded has no width yet: it is drawn when it is opened.
  const plots = [...within.querySelectorAll("[data-chart]")];
  for (const plot of plots) delete plot.dataset.drawn; // as it shall be now
  const waiting = plots.filter((it) => !it.closest("details:not([open])"));
  // One at a time, when the browser has shown the last and has nothing else to do.
  const next = () => {
    const plot = waiting.shift();
    if (!plot) return;
    draw(plot, how);
    whenIdle(next, { timeout: 300 });
  };
  next();
}

drawAll();
document.addEventListener("toggle", ({ target }) => target.open && drawAll(target, { keepRange: true }), true);
document.addEventListener("themechange", () => drawAll(document, { keepRange: true }));
// All at once: the browser prints when this returns.
document.addEventListener("printchange", () => {
  for (const plot of document.querySelectorAll("[data-chart]")) draw(plot, { keepRange: true });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document, { keepRange: true }));
document.addEventListener("livechange", (event) => {
  for (const plot of document.querySelectorAll(`[data-chart="${CSS.escape(event.detail)}"]`)) {
    draw(plot, { keepRange: readZooms().has(event.detail.replace(/-data$/, "")) });
  }
});
