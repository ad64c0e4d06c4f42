// Refreshes a page that is still growing. Asks for the same page again with its ETag and exchanges only the regions
// marked data-live="name" whose content changed; what is open stays open, the focus stays, and the page does not move.

const main = document.querySelector("[data-live-every]");
const everyMs = Math.max(1, Number(main?.dataset.liveEvery) || 3) * 1000;
let etag = null;
let timer = null;
let failures = 0;

function openDetails(region) {
  return new Set([...region.querySelectorAll("details[open][id]")].map((it) => it.id));
}

// What stands at the top of the window before the change stands there after it.
function anchor() {
  for (const it of main.querySelectorAll("h1, h2, h3, tr, figure")) {
    const { top } = it.getBoundingClientRect();
    if (top >= 0) return { it, top };
  }
  return null;
}

function exchange(old, fresh) {
  const open = openDetails(old);
  const { scrollLeft } = old;
  for (const it of fresh.querySelectorAll("details[id]")) it.open = open.has(it.id);
  if (old.isEqualNode(fresh)) return false;
  old.replaceChildren(...fresh.childNodes);
  old.scrollLeft = scrollLeft;
  return true;
}

function isBusy(region) {
  const selection = getSelection();
  const selecting = selection && !selection.isCollapsed && region.contains(selection.anchorNode);
  return selecting || region.contains(document.activeElement);
}

function apply(page) {
  const kept = anchor();
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.querySelector(`[data-live="${CSS.escape(old.dataset.live)}"]`);
    if (!fresh || isBusy(old)) continue;
    // Plotly writes into the plot, so a chart is refreshed through its JSON alone.
    if (exchange(old, fresh)) document.dispatchEvent(new CustomEvent("livechange", { detail: old.dataset.live }));
  }
  if (kept?.it.isConnected) scrollBy({ top: kept.it.getBoundingClientRect().top - kept.top, behavior: "instant" });
  document.title = page.title;
}

async function refresh() {
  try {
    const headers = etag ? { "If-None-Match": etag } : {};
    const response = await fetch(location.href, { headers, cache: "no-store", credentials: "same-origin" });
    failures = 0;
    if (response.status === 200) {
      etag = response.headers.get("ETag");
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      apply(page);
      if (!page.querySelector("[data-live-every]")) return; // the run has ended: nothing will change any more
    }
  } catch {
    failures += 1; // the server restarts, or the network is away: ask less and less often
  }
  plan();
}

function plan() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, everyMs * Math.min(2 ** failures, 20));
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) refresh();
});
if (main) plan();
