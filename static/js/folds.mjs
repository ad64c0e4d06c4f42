// Opens or closes every fold of a part of the page at once: <p data-folds="ID" hidden> holds the two buttons.

for (const row of document.querySelectorAll("[data-folds]")) {
  const part = document.getElementById(row.dataset.folds);
  if (!part) continue;
  row.hidden = false;
  row.addEventListener("click", (event) => {
    const button = event.target.closest("[data-open]");
    if (!button) return;
    for (const it of part.querySelectorAll("details")) it.open = button.dataset.open === "true";
  });
}
