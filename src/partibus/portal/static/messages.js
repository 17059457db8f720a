// Sending a message, and looking at those that are there.

import { KEY } from "./advice.js";
import { pathOf } from "./broker.js";
import { element, field, form, size } from "./dom.js";

const PAGE = 20;
const BODY_BYTES = 4096;
const BATCH = "application/vnd.microsoft.servicebus.json";

export function sendPart(broker, name) {
  const body = element("textarea", { name: "body", rows: "3" });
  const key = element("input", { name: "key", autocomplete: "off" });
  const session = element("input", { name: "session", autocomplete: "off" });
  const told = element("p", { class: "good", role: "status" });
  const fields = [field("Body", body), field("Partition key", key, KEY), field("Session", session, "Only where sessions are required.")];
  return element("details", {}, element("summary", {}, "Send a message"),
    form({}, fields, "Send", async () => {
      told.textContent = "";
      const BrokerProperties = {};
      if (key.value) BrokerProperties.PartitionKey = key.value;
      if (session.value) BrokerProperties.SessionId = session.value;
      const batch = JSON.stringify([{ Body: body.value, BrokerProperties }]);
      await broker.ask("POST", `${pathOf(name)}/messages`, batch, { "Content-Type": BATCH });
      told.textContent = "Accepted: it is on disk.";
      body.value = "";
    }), told);
}

export function peekPart(broker, path) {
  const place = element("div", {});
  const look = (title, behind) =>
    element("button", { onclick: () => browse(broker, path + behind, place) }, title);
  return element("section", {},
    element("h2", {}, "Messages"),
    element("div", { class: "acts" }, look("Peek messages", ""), look("Peek dead letters", "/$DeadLetterQueue")),
    place);
}

async function browse(broker, path, place) {
  const found = element("div", {});
  const more = element("button", { onclick: () => step() }, "More");
  place.replaceChildren(found, more);
  let from = 0;
  // Fragments are shown one after the other, each page of one of them.
  async function step() {
    more.disabled = true;
    let left = PAGE;
    try {
      while (left > 0) {
        const url = `/$partibus/entities${pathOf(path)}/messages?from=${from}&count=${left}&body=${BODY_BYTES}`;
        const { messages } = await broker.json("GET", url);
        if (!messages.length) {
          more.remove();
          found.append(element("p", { class: "hint" }, found.childElementCount ? "These are all." : "There is none."));
          return;
        }
        found.append(...messages.map(messagePart));
        left -= messages.length;
        from = messages.at(-1).BrokerProperties.SequenceNumber + 1;
      }
    } catch (error) {
      found.append(element("p", { class: "error", role: "alert" }, error.message));
    }
    more.disabled = false;
  }
  await step();
}

function messagePart(message) {
  const properties = message.BrokerProperties;
  const title = [`#${properties.SequenceNumber}`, properties.MessageId, properties.Label, properties.State, properties.EnqueuedTimeUtc];
  const body = message.Body ?? `${message.BodyBase64} (base64)`;
  const shown = { ...message.UserProperties, ...properties };
  const rest = message.BodyBytes > BODY_BYTES ? ` (the first ${size(BODY_BYTES)} of ${size(message.BodyBytes)})` : "";
  return element("details", { class: "message" },
    element("summary", {}, title.filter(Boolean).join(" · ")),
    element("pre", {}, body + rest),
    element("pre", {}, Object.entries(shown).map(([name, value]) => `${name}: ${value}`).join("\n")));
}
