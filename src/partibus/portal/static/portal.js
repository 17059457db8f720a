// Which page is shown: by what stands behind the # of the address.

import { Broker, Refused, readConnectionString } from "./broker.js";
import { element, field, form } from "./dom.js";
import { creatingPage } from "./creating.js";
import { entityPage } from "./entity.js";
import { overviewPage } from "./overview.js";
import { pipelinesPage } from "./pipelines.js";
import { subscriptionPage } from "./subscription.js";

const HEALTH_MS = 5000;
const PAGES = [
  [/^#\/new\/(queue|topic)$/, creatingPage],
  [/^#\/entity\/(.+)$/, entityPage],
  [/^#\/subscription\/(.+)$/, subscriptionPage],
  [/^#\/pipelines$/, pipelinesPage],
  [/^/, overviewPage],
];

const page = document.getElementById("page");
let broker = null;
let turn = 0;

async function show() {
  if (!broker) return page.replaceChildren(signIn());
  turn += 1;
  const mine = turn;
  const [pattern, make] = PAGES.find(([each]) => each.test(location.hash));
  const names = pattern.exec(location.hash).slice(1).map(decodeURIComponent);
  // A page that took too long does not replace the one that was asked for since.
  const still = () => mine === turn;
  let made;
  try {
    made = await make({ broker, again: show, still }, ...names);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return leave(error.message);
    made = [element("p", { class: "error", role: "alert" }, error.message)];
  }
  if (still()) page.replaceChildren(...made);
}

function signIn(trouble = "") {
  const text = element("input", { name: "connection", type: "password", required: true, autocomplete: "off" });
  const hint = "Printed when the broker starts. It stays in this tab; only signed tokens are sent.";
  return element("div", {},
    element("h1", {}, "Sign in"),
    trouble ? element("p", { class: "error", role: "alert" }, trouble) : null,
    form({}, [field("Connection string", text, hint)], "Sign in", async () => {
      const asked = new Broker(readConnectionString(text.value));
      await asked.ask("GET", "/$namespaceinfo");
      Broker.remember(text.value);
      enter(asked);
    }));
}

function enter(asked) {
  broker = asked;
  const out = element("button", { onclick: () => leave() }, "Sign out");
  document.getElementById("ways").replaceChildren(
    element("a", { href: "#/" }, "Overview"),
    element("a", { href: "#/new/queue" }, "New queue"),
    element("a", { href: "#/new/topic" }, "New topic"),
    element("a", { href: "#/pipelines" }, "Pipelines"),
    out,
  );
  show();
}

function leave(trouble) {
  broker = null;
  turn += 1;
  Broker.forget();
  document.getElementById("ways").replaceChildren();
  page.replaceChildren(signIn(trouble));
}

async function watchHealth() {
  const place = document.getElementById("health");
  try {
    const health = await (await fetch("/health", { cache: "no-store" })).json();
    const down = [
      ...health.stores.down.map((each) => `store ${each}`),
      ...health.nodes.down.map((each) => `node ${each}`),
    ];
    place.textContent = down.length ? `down: ${down.join(", ")}` : health.status;
    place.className = down.length ? "bad" : "good";
  } catch {
    place.textContent = "the broker does not answer";
    place.className = "bad";
  }
  setTimeout(watchHealth, HEALTH_MS);
}

async function begin() {
  watchHealth();
  const kept = Broker.remembered();
  if (kept) return enter(new Broker(readConnectionString(kept)));
  // With --dev nobody needs a key.
  const anybody = new Broker(null);
  try {
    await anybody.ask("GET", "/$namespaceinfo");
  } catch {
    return show();
  }
  enter(anybody);
}

addEventListener("hashchange", show);
begin();
