// Entities as the HTTP door writes and reads them: Atom entries with one description each.

const ATOM = "http://www.w3.org/2005/Atom";
const SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
const INSTANCE = "http://www.w3.org/2001/XMLSchema-instance";
const VERSION = "api-version=2021-05";
const PAGE = 100;
const PAGES_MAX = 100;

import { pathOf } from "./broker.js";

// Entries of a feed, or the one entry: {name, kind, values}.
export function read(text) {
  const found = new DOMParser().parseFromString(text, "application/xml");
  return [...found.getElementsByTagNameNS(ATOM, "entry")].map(readEntry);
}

function readEntry(entry) {
  const description = entry.getElementsByTagNameNS(ATOM, "content")[0].firstElementChild;
  const values = {};
  for (const each of description.getElementsByTagName("*")) {
    if (!each.childElementCount) values[each.localName] = each.textContent;
  }
  const name = entry.getElementsByTagNameNS(ATOM, "title")[0].textContent;
  return { name, kind: description.localName.replace("Description", ""), values };
}

export async function list(broker, path) {
  const found = [];
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const part = read(await broker.ask("GET", `${path}?$skip=${page * PAGE}&$top=${PAGE}&${VERSION}`));
    found.push(...part);
    if (part.length < PAGE) break;
  }
  return found;
}

export async function get(broker, name) {
  const [found] = read(await broker.ask("GET", `${pathOf(name)}?${VERSION}`));
  if (!found) throw new Error(`There is no '${name}' any more.`);
  return found;
}

export async function create(broker, path, kind, values) {
  return broker.ask("PUT", `${path}?${VERSION}`, write(kind, values), { "Content-Type": "application/atom+xml" });
}

export async function remove(broker, path) {
  return broker.ask("DELETE", `${path}?${VERSION}`);
}

// values: texts, or for a rule's filter {type, expression}.
function write(kind, values) {
  const made = document.implementation.createDocument(ATOM, "entry");
  const content = made.documentElement.appendChild(made.createElementNS(ATOM, "content"));
  content.setAttribute("type", "application/xml");
  const description = content.appendChild(made.createElementNS(SERVICE, `${kind}Description`));
  for (const [name, value] of Object.entries(values)) {
    const element = description.appendChild(made.createElementNS(SERVICE, name));
    if (typeof value === "string") {
      element.textContent = value;
    } else {
      element.setAttributeNS(INSTANCE, "i:type", value.type);
      element.appendChild(made.createElementNS(SERVICE, "SqlExpression")).textContent = value.expression;
    }
  }
  return new XMLSerializer().serializeToString(made);
}
