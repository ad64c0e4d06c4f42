// What every page has: the theme button, menus, filters that leave out what is empty, forms that ask once, drawn links.

const THEMES = ["auto", "light", "dark"];
const root = document.documentElement;

function wireTheme(button) {
  const show = () => {
    button.title = `Theme: ${root.dataset.theme ?? "auto"}`;
    button.setAttribute("aria-label", button.title);
  };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "auto") + 1) % THEMES.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === "auto") localStorage.removeItem("compileboard-theme");
      else localStorage.setItem("compileboard-theme", next);
    } catch {
      // Storage may be forbidden; the choice then lasts as long as the page.
    }
    show();
    document.dispatchEvent(new CustomEvent("themechange"));
  });
}

// A shared link should say what was filtered and nothing else.
function wireFilters(form) {
  form.addEventListener("submit", () => {
    const empty = [...form.elements].filter((it) => it.name && it.value === "");
    for (const it of empty) it.disabled = true;
    setTimeout(() => { for (const it of empty) it.disabled = false; });
  });
  form.addEventListener("change", (event) => {
    // Of several choices the first is rarely the last.
    if (event.target.matches("select:not([multiple])")) form.requestSubmit();
  });
}

// A choice applies at once; the filters stay unfolded for the next one, on the page that comes of it.
const FOLD = "compileboard-filters";
function wireFold(fold) {
  try {
    if (sessionStorage.getItem(FOLD) === location.pathname) fold.open = true;
    sessionStorage.removeItem(FOLD);
    fold.querySelector("form").addEventListener("submit", () => sessionStorage.setItem(FOLD, location.pathname));
  } catch {
    // Storage may be forbidden; the filters then fold.
  }
}

// A chart that is zoomed in changes the address.
function wireView(form) {
  form.addEventListener("submit", () => {
    form.elements.address.value = location.pathname + location.search + location.hash;
  });
}

function wireCopy(button) {
  if (!navigator.clipboard) return; // only where the address is trusted
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

function wireOnce(form) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
}

// A point of a chart or a phase of the timeline leads to a page. A copy of static files
// names the file of each that it has.
const files = document.getElementById("site-files");
const pages = files && new Map(Object.entries(JSON.parse(files.textContent)));
document.addEventListener("openpage", ({ detail }) => {
  const address = pages ? pages.get(detail) : detail;
  if (address) location.assign(address);
});

// A menu closes with Escape, a press beside it, or another menu; without this it closes with its own button.
function closeMenus(except) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(except)) menu.open = false;
}
addEventListener("pointerdown", (event) => closeMenus(event.target));
addEventListener("focusin", (event) => closeMenus(event.target));
addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.activeElement?.closest?.("details.menu[open]");
  if (menu) menu.querySelector("summary").focus();
  if (event.key === "Escape") closeMenus(null);
});

// On a narrow window the tab that is open may be beyond the edge of its row.
for (const row of document.querySelectorAll(".tabs__row, .subnav")) {
  const open = row.querySelector("[aria-current]");
  if (open && open.offsetLeft + open.offsetWidth > row.offsetLeft + row.clientWidth - 32) row.scrollLeft = open.offsetLeft - row.offsetLeft - 32;
}

// A box that scrolls sideways fades at its right edge while there is more.
const markCut = (box) => box.classList.toggle("is-cut", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
const sizes = new ResizeObserver((entries) => { for (const { target } of entries) markCut(target); });
for (const box of document.querySelectorAll(".scroll, .code")) {
  sizes.observe(box);
  box.addEventListener("scroll", () => markCut(box), { passive: true });
}

// A slash goes to the search box, as long as nobody is writing; Ctrl-K or Command-K always does.
addEventListener("keydown", (event) => {
  const isCommand = event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey;
  const isSlash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey;
  if (!isCommand && !isSlash) return;
  if (isSlash && event.target.closest?.("input, textarea, select, [contenteditable]")) return;
  const box = document.querySelector("main [data-search-box]") ?? document.querySelector("[data-search-box]");
  if (!box) return;
  if (!box.checkVisibility()) box.closest("[popover]")?.showPopover?.();
  event.preventDefault();
  box.focus();
  box.select();
});

// "Back" brings the page from memory: forms may be sent again.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// Lines open in the reader's editor, by an address that the reader chose on a run's page Environment.
const EDITOR = "compileboard-editor";
function editorAddress(pattern, { path, file, line, host }) {
  const values = { path: path.replace(/^\//, ""), file, line, host };
  const encode = (text) => text.split("/").map(encodeURIComponent).join("/");
  const address = pattern.replace(/\{(path|file|line|host)\}/g, (_whole, name) => encode(values[name]));
  try {
    const { protocol } = new URL(address);
    return ["javascript:", "data:", "vbscript:", "blob:"].includes(protocol) ? null : address;
  } catch {
    return null;
  }
}
function showEditorLinks() {
  let pattern = "";
  try {
    pattern = localStorage.getItem(EDITOR) ?? "";
  } catch {
    // Storage may be forbidden; there are no such links then.
  }
  for (const it of document.querySelectorAll("a.editor")) {
    const address = pattern && editorAddress(pattern, it.dataset);
    it.hidden = !address;
    if (address) it.href = address;
  }
  return pattern;
}
function wireEditor(form) {
  form.elements.editor.value = showEditorLinks();
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const pattern = form.elements.editor.value.trim();
    const wrong = pattern && !editorAddress(pattern, { path: "/a", file: "a", line: "1", host: "h" });
    form.elements.editor.setCustomValidity(wrong ? "Expected an address such as vscode://file/{path}:{line}" : "");
    if (!form.reportValidity()) return;
    try {
      localStorage.setItem(EDITOR, pattern);
    } catch {
      // As above.
    }
    form.querySelector("button").textContent = "Saved";
    showEditorLinks();
  });
  form.elements.editor.addEventListener("input", () => {
    form.elements.editor.setCustomValidity("");
    form.querySelector("button").textContent = "Save";
  });
}

showEditorLinks();
document.addEventListener("livechange", showEditorLinks);
for (const it of document.querySelectorAll("[data-editor]")) wireEditor(it);
for (const it of document.querySelectorAll("[data-theme-toggle]")) wireTheme(it);
for (const it of document.querySelectorAll("form[data-filters]")) wireFilters(it);
for (const it of document.querySelectorAll("[data-filters-fold]")) wireFold(it);
for (const it of document.querySelectorAll(".command > [data-copy]")) wireCopy(it);
for (const it of document.querySelectorAll("form[data-save-view]")) wireView(it);
for (const it of document.querySelectorAll("form[method=post]")) wireOnce(it);
