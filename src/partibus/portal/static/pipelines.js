// The pipelines of the namespace: how they are, pausing and resuming them.

import { count, element, table } from "./dom.js";

export async function pipelinesPage({ broker, again }) {
  const { pipelines } = await broker.json("GET", "/$partibus/pipelines");
  const order = (each, what) => async () => {
    await broker.json("POST", `/$partibus/pipelines/${encodeURIComponent(each.name)}/${what}`);
    again();
  };
  const button = (each) =>
    each.state === "paused"
      ? element("button", { onclick: order(each, "resume") }, "Resume")
      : element("button", { onclick: order(each, "pause") }, "Pause");
  return [
    element("h1", {}, "Pipelines"),
    table([
      ["Name", (each) => each.name],
      ["State", (each) => each.state],
      ["Messages", (each) => count(each.messages), "number"],
      ["Per second", (each) => count(Math.round(each.messagesPerSecond ?? 0)), "number"],
      ["Lag", (each) => count(each.lag ?? 0), "number"],
      ["Last error", (each) => each.error ?? ""],
      ["", button],
    ], pipelines, "None is declared. Pipelines stand in the configuration file, under “Pipelines”."),
  ];
}
