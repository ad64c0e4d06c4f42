// Code boxes: copying a whole text, and ranges of lines in the address (#L10-L20, made by shift-click).

const RANGE = /^#(.*?)(\d+)-(?:.*?)(\d+)$/;

function readText(box) {
  const lines = [...box.querySelectorAll(".ln > code")].map((it) => it.textContent);
  // A line alone is a command: pasted into a terminal it waits to be sent.
  return lines.length === 1 ? lines[0] : `${lines.join("\n")}\n`;
}

// The clipboard's own interface is missing where the dashboard is served over plain HTTP to another machine.
async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser refused to copy");
}

function wireCopy(box, button) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await copy(readText(box));
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}

function wireRanges(box) {
  const prefix = box.dataset.source;
  box.addEventListener("click", (event) => {
    const link = event.shiftKey && event.target.closest(".ln > .no");
    const from = /^#(.*?)(\d+)(?:-.*)?$/.exec(location.hash);
    if (!link || !from || from[1] !== prefix) return;
    event.preventDefault();
    const [low, high] = [Number(from[2]), Number(link.textContent)].sort((a, b) => a - b);
    getSelection().removeAllRanges();
    history.replaceState(history.state, "", `#${prefix}${low}-${prefix}${high}`);
    showRange(false);
  });
}

function showRange(scroll) {
  for (const it of document.querySelectorAll(".ln--on")) it.classList.remove("ln--on");
  const range = RANGE.exec(location.hash);
  if (!range) return;
  const [low, high] = [Number(range[2]), Number(range[3])];
  for (let number = low; number <= high; number++) {
    const line = document.getElementById(`${range[1]}${number}`);
    if (!line) break;
    line.classList.add("ln--on");
    if (scroll && number === low) line.scrollIntoView({ block: "start" });
  }
}

for (const box of document.querySelectorAll("[data-source]")) {
  wireRanges(box);
  for (const button of box.querySelectorAll("[data-copy]")) wireCopy(box, button);
}
addEventListener("hashchange", () => showRange(true));
showRange(true);
