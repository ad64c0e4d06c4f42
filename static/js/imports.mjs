// Sends logs and results that are dropped or chosen, and follows every import on the page until it has ended.

const list = document.querySelector("[data-imports]");
const form = document.querySelector("form[data-upload]");
const POLL_MS = 500;
const MAX_FILES = 1000;

function announce(text) {
  const place = document.querySelector("[data-announce]");
  if (place) place.textContent = text;
}

function size(bytes) {
  return `${(bytes / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 1 })} MiB`;
}

function fail(row, text) {
  row.dataset.state = "failed";
  row.querySelector(".badge").className = "badge badge--bad";
  row.querySelector(".badge").textContent = "failed";
  row.querySelector(".import__bar")?.remove();
  row.querySelector(".import__said").textContent = text;
  announce(`${row.querySelector(".import__name").textContent}: ${text}`);
}

// --- following: the server writes the row, the page shows it

function hasEnded(row) {
  return row.dataset.state === "done" || row.dataset.state === "failed";
}

function show(old, fresh) {
  if (fresh.dataset.state !== old.dataset.state) {
    const said = [".import__name", ".badge", ".import__said"].map((it) => fresh.querySelector(it).textContent.trim());
    announce(said.filter(Boolean).join(", "));
  }
  const focused = old.contains(document.activeElement) && document.activeElement.className;
  // The bar stays the same element, so that it moves on instead of jumping.
  const [bar, next] = [old.querySelector("progress"), fresh.querySelector("progress")];
  if (bar && next) {
    for (const name of ["max", "value"]) {
      if (next.hasAttribute(name)) bar.setAttribute(name, next.getAttribute(name));
      else bar.removeAttribute(name);
    }
    bar.setAttribute("aria-label", next.getAttribute("aria-label"));
    next.replaceWith(bar);
  }
  old.replaceWith(fresh);
  if (focused) fresh.querySelector(`.${CSS.escape(focused)}`)?.focus();
}

async function follow(row) {
  const address = `/imports/${encodeURIComponent(row.dataset.import)}`;
  let etag = "";
  let failures = 0;
  while (!hasEnded(row)) {
    await new Promise((done) => setTimeout(done, POLL_MS * Math.min(2 ** failures, 20)));
    if (document.hidden) continue;
    try {
      const answer = await fetch(address, { headers: etag ? { "If-None-Match": etag } : {}, cache: "no-store" });
      failures = 0;
      if (answer.status === 304) continue;
      if (answer.status === 404) return fail(row, "This import is no longer known here. Look for its run.");
      if (!answer.ok) throw new Error(answer.statusText);
      etag = answer.headers.get("ETag") ?? "";
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = document.importNode(page.querySelector("[data-import]"), true);
      show(row, fresh);
      row = fresh;
    } catch {
      failures += 1; // the server restarts, or the network is away
    }
  }
}

// --- sending

function label(files) {
  const tops = new Set(files.map(({ path }) => (path.includes("/") ? path.split("/")[0] : "")));
  if (tops.size === 1 && !tops.has("")) return [...tops][0];
  return files.length === 1 ? files[0].path : `${files[0].path} and ${files.length - 1} more`;
}

function addRow(files) {
  const row = document.getElementById("import-row").content.firstElementChild.cloneNode(true);
  row.querySelector(".import__name").textContent = label(files);
  row.querySelector("progress").setAttribute("aria-label", `Upload of ${label(files)}`);
  list.prepend(row);
  return row;
}

function refusal(files, bytes) {
  const most = Number(form.dataset.mostBytes);
  if (files.length > MAX_FILES) return `These are ${files.length} files; at most ${MAX_FILES} go at once. Send an archive.`;
  if (bytes <= most) return "";
  return `These are ${size(bytes)}; this server takes ${size(most)} at once. Compress the log, or import it on the server.`;
}

function send(files) {
  if (!files.length) return announce("There was no file in it.");
  const bytes = files.reduce((sum, { file }) => sum + file.size, 0);
  const row = addRow(files);
  const why = refusal(files, bytes);
  if (why) return fail(row, why);
  const body = new FormData();
  for (const [name, value] of new FormData(form)) if (name !== "files" && value) body.append(name, value);
  for (const { file, path } of files) body.append("files", file, path);
  const request = new XMLHttpRequest();
  const [bar, said] = [row.querySelector("progress"), row.querySelector(".import__said")];
  request.upload.addEventListener("progress", ({ loaded, total }) => {
    bar.value = total ? loaded / total : 0;
    said.textContent = loaded < total ? `${size(loaded)} of ${size(total)} sent.` : "Sent; the server takes it in.";
  });
  request.addEventListener("load", () => taken(row, request));
  request.addEventListener("error", () => fail(row, "The connection broke before the server had answered. Send it again."));
  request.open("POST", "/api/v1/imports");
  request.responseType = "json";
  announce(`Sending ${label(files)}, ${size(bytes)}.`);
  request.send(body);
}

function taken(row, request) {
  const answer = request.response;
  if (request.status !== 202) return fail(row, answer?.error ?? `The server answered ${request.status}.`);
  row.dataset.import = answer.data.id;
  row.dataset.state = "receiving";
  follow(row);
}

// --- what is dropped: files, or folders with all that is in them

async function readFolder(entry) {
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, failed) => reader.readEntries(done, failed)); // a hundred at a time
    if (!some.length || found.length > MAX_FILES) return found;
    found.push(...some);
  }
}

async function collect(entry, within = "") {
  const path = within + entry.name;
  if (within && entry.name.startsWith(".")) return [];
  if (entry.isDirectory) {
    const inside = [];
    for (const it of await readFolder(entry)) inside.push(...(await collect(it, `${path}/`)));
    return inside;
  }
  return [{ file: await new Promise((done, failed) => entry.file(done, failed)), path }];
}

async function readDrop(transfer) {
  // All entries at once: what was dropped is gone when this event has ended.
  const entries = [...transfer.items].map((it) => it.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, path: file.name }));
  return (await Promise.all(entries.map((it) => collect(it)))).flat();
}

function wireDrop(cover) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const hide = () => { cover.hidden = true; };
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    cover.hidden = false;
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) hide(); });
  document.addEventListener("drop", async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    hide();
    try {
      send(await readDrop(event.dataTransfer));
    } catch (error) {
      announce(`What was dropped cannot be read: ${error.message}`);
    }
  });
}

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const inputs = [...form.querySelectorAll("input[type=file]")];
    const files = inputs.flatMap((it) => [...it.files]).filter((it) => !it.name.startsWith("."));
    if (!files.length) return inputs[0].focus();
    send(files.map((file) => ({ file, path: file.webkitRelativePath || file.name })));
    for (const it of inputs) it.value = "";
  });
  wireDrop(document.querySelector("[data-drop]"));
  document.querySelector("[data-hint]").hidden = false;
}
for (const row of list?.querySelectorAll("[data-import]") ?? []) follow(row);
