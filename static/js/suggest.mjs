// The search box as a palette: what a text may mean, below it while it is written. Up, Down and Enter choose, Escape
// closes; without a choice, Enter searches all texts. Without this script the form does so alone.

const WAIT_MS = 120;
const KINDS = {
  run: "Run", suite: "Suite", model: "Model", function: "Function", failure: "Failure", graph_break: "Graph break",
  recompile: "Recompile", rerecording: "CUDA graph",
  issue: "Failure across runs",
};

const make = (name, className, text) => Object.assign(document.createElement(name), { className, textContent: text });

function wire(form) {
  const box = form.querySelector("[data-search-box]");
  const list = Object.assign(make("ul", "find__list", ""), { id: "suggestions", role: "listbox", hidden: true });
  list.setAttribute("aria-label", "Suggestions");
  form.append(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false" }))
    box.setAttribute(name, value);
  let asked = null;
  let timer = null;

  function close() {
    clearTimeout(timer);
    asked?.abort();
    list.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  }

  function choose(option) {
    list.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    if (!option) return box.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", option.id);
  }

  function addOption({ kind, label, detail, address }) {
    const option = Object.assign(make("li", "find__option", ""), { id: `suggestion-${list.children.length}`, role: "option" });
    option.setAttribute("aria-selected", "false");
    const link = Object.assign(make("a", "find__link", ""), { href: address, tabIndex: -1 });
    link.append(make("span", "find__label", label), make("span", "find__kind", [kind, detail].filter(Boolean).join(" · ")));
    option.append(link);
    list.append(option);
  }

  function show(text, suggestions) {
    list.replaceChildren();
    for (const it of suggestions) if (/^\/(?!\/)/.test(it.address)) addOption({ ...it, kind: KINDS[it.kind] ?? it.kind });
    const query = `?${new URLSearchParams({ q: text })}`;
    if (form.dataset.run) addOption({ label: `“${text}” in this run`, kind: "Search", address: form.dataset.run + query });
    addOption({ label: `“${text}” in all runs`, kind: "Search", address: new URL(form.action).pathname + query });
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    choose(null);
  }

  async function ask(text) {
    asked?.abort();
    asked = new AbortController();
    try {
      const answer = await fetch(`${form.dataset.suggest}?${new URLSearchParams({ q: text })}`, { signal: asked.signal });
      if (answer.ok) show(text, (await answer.json()).data.suggestions);
    } catch (error) {
      if (error.name !== "AbortError") close(); // no server: the form still says so
    }
  }

  box.addEventListener("input", () => {
    clearTimeout(timer);
    const text = box.value.trim();
    if (text) timer = setTimeout(ask, WAIT_MS, text);
    else close();
  });
  box.addEventListener("keydown", (event) => {
    const options = [...list.children];
    const at = options.findIndex((it) => it.getAttribute("aria-selected") === "true");
    if (event.key === "Escape" && !list.hidden) close();
    else if (list.hidden || !["ArrowDown", "ArrowUp", "Enter"].includes(event.key)) return;
    else if (event.key !== "Enter") choose(options[(at + (event.key === "ArrowDown" ? 1 : at < 0 ? 0 : -1) + options.length) % options.length]);
    else if (at < 0) return;
    else options[at].querySelector("a").click();
    event.preventDefault();
  });
  form.addEventListener("focusout", ({ relatedTarget }) => !form.contains(relatedTarget) && close());
  // A click would take the focus, and the list with it, before it is one.
  list.addEventListener("mousedown", (event) => event.preventDefault());
}

for (const form of document.querySelectorAll("form[data-suggest]")) wire(form);
