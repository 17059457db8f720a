// All entities, what they hold and how large they may become.

import { get, list } from "./atom.js";
import { CLIENTS } from "./advice.js";
import { count, element, size, table } from "./dom.js";

const AGAIN_MS = 5000;
const MB = 1024 * 1024;

export async function overviewPage({ broker, again, still }) {
  const [queues, topics, namespace] = await Promise.all([
    list(broker, "/$Resources/queues"),
    list(broker, "/$Resources/topics"),
    get(broker, "$namespaceinfo"),
  ]);
  setTimeout(() => still() && again(), AGAIN_MS);
  return [
    element("h1", {}, `Namespace ${namespace.name}`),
    element("h2", {}, "Queues"),
    table(columns([["Active", "ActiveMessageCount"], ["Dead letters", "DeadLetterMessageCount"], ["Scheduled", "ScheduledMessageCount"]]),
      queues, "There is no queue yet."),
    element("h2", {}, "Topics"),
    table(columns([["Subscriptions", "SubscriptionCount"], ["Scheduled", "ScheduledMessageCount"]]),
      topics, "There is no topic yet."),
    element("p", { class: "hint" }, CLIENTS),
  ];
}

function columns(counts) {
  return [
    ["Name", (each) => element("a", { href: `#/entity/${encodeURIComponent(each.name)}` }, each.name)],
    ["Partitioned", (each) => (each.values.EnablePartitioning === "true" ? "yes" : "no")],
    ["Status", statusOf],
    ...counts.map(([title, name]) => [title, (each) => count(each.values[name] ?? 0), "number"]),
    ["Size", (each) => size(each.values.SizeInBytes), "number"],
    ["Maximum size", (each) => size(each.values.MaxSizeInMegabytes * MB), "number"],
  ];
}

export function statusOf(entity) {
  const { Status, EntityAvailabilityStatus } = entity.values;
  if (EntityAvailabilityStatus === "Limited") {
    return element("span", { class: "bad" }, `${Status}, limited: a fragment is down`);
  }
  return Status;
}
