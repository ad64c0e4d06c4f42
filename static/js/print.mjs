// Paper is white and narrow, whatever the screen is: before the browser prints, folded parts are opened, the theme is
// light and charts are drawn as wide as the page (static/css/print.css); afterwards all is as it was.
const root = document.documentElement;
let theme;
let opened = [];

addEventListener("beforeprint", () => {
  theme = root.dataset.theme;
  root.dataset.theme = "light";
  root.dataset.print = "yes";
  opened = [...document.querySelectorAll("main details:not([open], .twin, .text, .edit, .choices)")];
  for (const it of opened) it.open = true;
  document.dispatchEvent(new CustomEvent("printchange"));
});
addEventListener("afterprint", () => {
  if (theme === undefined) delete root.dataset.theme;
  else root.dataset.theme = theme;
  delete root.dataset.print;
  for (const it of opened) it.open = false;
  document.dispatchEvent(new CustomEvent("printchange"));
});
