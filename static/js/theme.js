// Runs before the first paint, so that a chosen theme never flashes: the reader's choice, else the system's.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("compileboard-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's theme is then right.
  }
})();
