// Elements without markup in strings: what a message or a name says is never read as HTML.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && typeof value !== "string") made[key] = value;
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// columns: [title, cell of a row, "number" where it is one]
export function table(columns, rows, empty) {
  if (!rows.length) return element("p", { class: "hint" }, empty);
  const head = columns.map(([title, , kind]) => element("th", { class: kind ?? "" }, title));
  const line = (row) =>
    element("tr", {}, columns.map(([, cell, kind]) => element("td", { class: kind ?? "" }, cell(row) ?? "")));
  return element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows.map(line)));
}

export function field(title, input, hint) {
  return element("label", {}, title, input, hint ? element("small", {}, hint) : null);
}

export function tick(title, input, hint) {
  return element("label", { class: "tick" }, input, title, hint ? element("small", {}, hint) : null);
}

// A form that runs `act` once at a time and tells what went wrong beside itself.
export function form(attributes, children, title, act) {
  const told = element("p", { class: "error", role: "alert", hidden: true });
  const button = element("button", { class: "main", type: "submit" }, title);
  const made = element("form", { ...attributes, onsubmit: (event) => { event.preventDefault(); run(); } },
    children, element("div", {}, button), told);
  async function run() {
    button.disabled = true;
    told.hidden = true;
    try {
      await act(made);
    } catch (error) {
      told.textContent = error.message;
      told.hidden = false;
    } finally {
      button.disabled = false;
    }
  }
  return made;
}

export function size(bytes) {
  const units = ["bytes", "KB", "MB", "GB"];
  let at = 0;
  let value = Number(bytes);
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${Math.round(value * 10) / 10} ${units[at]}`;
}

export const count = (number) => Number(number).toLocaleString("en");
