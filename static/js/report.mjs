// Written into a report behind charts.mjs, whose drawAll it calls: paper is white, whatever the screen's theme is.
addEventListener("beforeprint", () => {
  document.documentElement.dataset.theme = "light";
  for (const it of document.querySelectorAll("details:not(.twin, .text)")) it.open = true;
  drawAll();
});
addEventListener("afterprint", () => {
  delete document.documentElement.dataset.theme;
  drawAll();
});
