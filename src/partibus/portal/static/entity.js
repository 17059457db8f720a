// One queue or topic: its properties, fragments, messages, subscriptions, and what can be done to it.

import { create, get, list, remove } from "./atom.js";
import { pathOf } from "./broker.js";
import { count, element, field, form, size, table } from "./dom.js";
import { peekPart, sendPart } from "./messages.js";
import { statusOf } from "./overview.js";

const MB = 1024 * 1024;
const OPERATIONS = "/$partibus/entities";
// The largest span that the protocol has stands for "never".
const FOREVER = "P10675199DT2H48M5.4775807S";
const HIDDEN = new Set(["SizeInBytes", "MaxSizeInMegabytes", "AccessedAt", "Status", "EntityAvailabilityStatus"]);

export async function entityPage({ broker, again }, name) {
  const entity = await get(broker, name);
  const isQueue = entity.kind === "Queue";
  const fragments = (await broker.json("GET", `/$partibus/fragments${pathOf(name)}`)).fragments;
  const subscriptions = isQueue ? [] : await list(broker, `${pathOf(name)}/subscriptions`);
  const most = entity.values.MaxSizeInMegabytes * MB;
  return [
    element("h1", {}, entity.name),
    element("p", {}, `${entity.kind}, `, statusOf(entity), `, ${size(entity.values.SizeInBytes)} of at most ${size(most)} `,
      element("meter", { max: most, value: Number(entity.values.SizeInBytes) })),
    sendPart(broker, name),
    isQueue ? peekPart(broker, name) : subscriptionsPart(broker, name, subscriptions, again),
    element("h2", {}, "Fragments"),
    table(FRAGMENTS, fragments, "It has none."),
    element("h2", {}, "Properties"),
    propertiesTable(entity.values),
    deletingPart(broker, name, { canEmpty: isQueue }),
  ];
}

const FRAGMENTS = [
  ["Fragment", (each) => String(each.partition)],
  ["Store", (each) => String(each.store)],
  ["Node", (each) => String(each.node)],
  ["State", (each) => element("span", { class: each.available ? "good" : "bad" }, each.available ? "available" : "down")],
  ["Active", (each) => count(each.active), "number"],
  ["Deferred", (each) => count(each.deferred), "number"],
  ["Scheduled", (each) => count(each.scheduled), "number"],
  ["Dead letters", (each) => count(each.deadLetters), "number"],
  ["Size", (each) => size(each.bytes), "number"],
];

export function propertiesTable(values) {
  const rows = Object.entries(values).filter(([name, value]) => value && !HIDDEN.has(name));
  return table([
    ["Property", ([name]) => name],
    ["Value", ([, value]) => (value === FOREVER ? "never" : value)],
  ], rows, "");
}

function subscriptionsPart(broker, topic, subscriptions, again) {
  const input = element("input", { name: "subscription", required: true, autocomplete: "off" });
  const link = (each) =>
    element("a", { href: `#/subscription/${encodeURIComponent(`${topic}/subscriptions/${each.name}`)}` }, each.name);
  return element("section", {},
    element("h2", {}, "Subscriptions"),
    table([
      ["Name", link],
      ["Status", statusOf],
      ["Active", (each) => count(each.values.ActiveMessageCount), "number"],
      ["Dead letters", (each) => count(each.values.DeadLetterMessageCount), "number"],
    ], subscriptions, "There is none yet: what is published goes nowhere."),
    form({ class: "row" }, [field("New subscription", input)], "Add", async () => {
      await create(broker, pathOf(`${topic}/subscriptions/${input.value}`), "Subscription", {});
      again();
    }));
}

// Emptying and deleting ask for the name, because neither can be undone.
export function deletingPart(broker, name, { canEmpty }) {
  const input = element("input", { name: "confirmation", autocomplete: "off" });
  const told = element("p", { role: "status" });
  const act = (title, run) =>
    element("button", { class: "grave", onclick: async () => {
      try {
        if (input.value !== name) throw new Error(`Type the name '${name}' first.`);
        told.textContent = (await run()) ?? "";
        told.className = "";
      } catch (error) {
        told.textContent = error.message;
        told.className = "error";
      }
    } }, title);
  const purge = async () => {
    const { deleted, complete } = await broker.json("POST", `${OPERATIONS}${pathOf(name)}/purge`);
    return `${count(deleted)} messages removed${complete ? "" : "; there are more, ask again"}.`;
  };
  const leave = async () => {
    await remove(broker, pathOf(name));
    location.hash = "#/";
  };
  return element("section", {},
    element("h2", {}, canEmpty ? "Empty or delete" : "Delete"),
    element("div", { class: "acts" }, field("Its name, to be sure", input),
      canEmpty ? act("Empty", purge) : null, act("Delete", leave)), told);
}
