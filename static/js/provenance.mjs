// Source, graphs and generated code side by side: a selected line marks its partners in the other panes and scrolls
// them into view. Links are {pane: {line: {other pane: [lines]}}}; a line of a pane is #PANE-L12.

const root = document.querySelector("[data-provenance]");
const links = JSON.parse(document.getElementById("provenance-links").textContent);
const panes = new Map([...root.querySelectorAll("[data-pane]")].map((it) => [it.dataset.pane, it]));
const status = root.querySelector("[data-status]");
const introduction = [...status.childNodes];
const LINE = /^(\w+)-L(\d+)$/;

const findLine = (pane, number) => document.getElementById(`${pane}-L${number}`);

function clear() {
  for (const it of root.querySelectorAll(".ln--on, .ln--partner")) it.classList.remove("ln--on", "ln--partner");
}

// Only the pane scrolls: the page stays where its reader is.
function scrollTo(line) {
  const box = line.closest(".source__box");
  const top = line.getBoundingClientRect().top - box.getBoundingClientRect().top;
  if (top < 0 || top > box.clientHeight - line.offsetHeight * 2) box.scrollTop += top - box.clientHeight / 3;
}

function describe(pane, number, partners) {
  const parts = Object.entries(partners).filter(([other]) => panes.has(other)).map(([other, numbers]) =>
    `${numbers.length} ${numbers.length === 1 ? "line" : "lines"} of ${panes.get(other).dataset.title.toLowerCase()}`);
  const shown = findLine(pane, number).querySelector(".no").textContent;
  return `${panes.get(pane).dataset.title}, line ${shown}: ${parts.join(", ") || "joined to nothing"}.`;
}

function select(pane, number, { scroll = false } = {}) {
  const line = panes.has(pane) && findLine(pane, number);
  if (!line) return;
  clear();
  line.classList.add("ln--on");
  if (scroll) scrollTo(line);
  const partners = links[pane]?.[number] ?? {};
  for (const [other, numbers] of Object.entries(partners)) {
    const found = numbers.map((it) => findLine(other, it)).filter(Boolean);
    for (const it of found) it.classList.add("ln--partner");
    if (found.length) scrollTo(found[0]);
  }
  status.textContent = describe(pane, number, partners);
  history.replaceState(history.state, "", `#${line.id}`);
}

function selectAddressed() {
  const found = LINE.exec(decodeURIComponent(location.hash.slice(1)));
  if (found) select(found[1], Number(found[2]), { scroll: true });
}

function move(pane, step) {
  const numbers = Object.keys(links[pane] ?? {}).map(Number).filter((it) => findLine(pane, it));
  const on = panes.get(pane).querySelector(".ln--on");
  const here = on ? Number(LINE.exec(on.id)[2]) : step > 0 ? 0 : Infinity;
  const next = step > 0 ? numbers.find((it) => it > here) : numbers.findLast((it) => it < here);
  if (next !== undefined) select(pane, next, { scroll: true });
}

for (const [pane, element] of panes) {
  element.addEventListener("click", (event) => {
    const line = event.target.closest(".ln");
    if (!line || event.shiftKey || event.ctrlKey || event.metaKey || !getSelection().isCollapsed) return;
    event.preventDefault();
    select(pane, Number(LINE.exec(line.id)[2]));
  });
  element.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(pane, event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Escape") {
      clear();
      status.replaceChildren(...introduction);
    }
  });
}

root.classList.add("prov--live");
root.querySelector("[data-keys]").hidden = false;
addEventListener("hashchange", selectAddressed);
selectAddressed();
