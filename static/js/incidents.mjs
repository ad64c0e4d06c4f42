// An incident's page: its buttons open the forms below, and a name is typed once a browser.
const KEY = "compileboard.author";

function read() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return ""; // storage is off
  }
}

for (const input of document.querySelectorAll("[data-remember]")) {
  input.value ||= read();
  input.form.addEventListener("submit", () => {
    try {
      localStorage.setItem(KEY, input.value);
    } catch {
      // storage is off
    }
  });
}

for (const link of document.querySelectorAll("[data-opens]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault(); // following the address would take the focus away again
    const fold = document.getElementById(link.dataset.opens);
    fold.open = true;
    const empty = [...fold.querySelectorAll("input, textarea")].find((field) => field.required && !field.value);
    fold.scrollIntoView({ block: "center" });
    (empty ?? fold.querySelector("button")).focus();
  });
}
