// The form for a new queue or topic.

import { create } from "./atom.js";
import { DUPLICATES, PARTITIONING, SESSIONS } from "./advice.js";
import { pathOf } from "./broker.js";
import { element, field, form, tick } from "./dom.js";

const SIZES_MB = [1024, 2048, 3072, 4096, 5120];

const box = (name, checked = false) => element("input", { name, type: "checkbox", checked });

export async function creatingPage({ broker }, kind) {
  const isQueue = kind === "queue";
  const options = SIZES_MB.map((each) => element("option", { value: String(each) }, `${each / 1024} GB`));
  const fields = [
    field("Name", element("input", { name: "name", required: true, maxlength: "260", autocomplete: "off" })),
    tick("Enable partitioning", box("EnablePartitioning", true), PARTITIONING),
    field("Maximum size", element("select", { name: "MaxSizeInMegabytes" }, options),
      "Of a partitioned entity: of each of its fragments."),
    field("Time to live", element("input", { name: "DefaultMessageTimeToLive", placeholder: "P14D" }),
      "As P14D or PT30M; empty: for ever."),
    isQueue ? tick("Dead-letter expired messages", box("DeadLetteringOnMessageExpiration")) : null,
    tick("Detect duplicates", box("RequiresDuplicateDetection"), DUPLICATES),
    isQueue ? tick("Require sessions", box("RequiresSession"), SESSIONS) : null,
    isQueue ? field("Lock duration", element("input", { name: "LockDuration", placeholder: "PT1M" }), "From PT5S to PT5M.") : null,
    isQueue
      ? field("Maximum delivery count", element("input", { name: "MaxDeliveryCount", type: "number", min: "1", max: "2000", placeholder: "10" }))
      : null,
  ];
  return [
    element("h1", {}, `New ${kind}`),
    form({}, fields, "Create", async (made) => {
      const name = made.elements.name.value;
      await create(broker, pathOf(name), isQueue ? "Queue" : "Topic", valuesOf(made));
      location.hash = `#/entity/${encodeURIComponent(name)}`;
    }),
  ];
}

// What is left empty is for the broker to decide.
function valuesOf(made) {
  const values = {};
  for (const each of made.elements) {
    if (!each.name || each.name === "name") continue;
    const value = each.type === "checkbox" ? String(each.checked) : each.value.trim();
    if (value) values[each.name] = value;
  }
  return values;
}
