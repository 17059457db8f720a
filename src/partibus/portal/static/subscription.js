// One subscription: its messages and its rules.

import { create, get, list, remove } from "./atom.js";
import { pathOf } from "./broker.js";
import { element, field, form, table } from "./dom.js";
import { deletingPart, propertiesTable } from "./entity.js";
import { peekPart } from "./messages.js";
import { statusOf } from "./overview.js";

export async function subscriptionPage({ broker, again }, path) {
  const [topic, name] = path.split("/subscriptions/");
  const rulesPath = `${pathOf(path)}/rules`;
  const [subscription, rules] = await Promise.all([get(broker, path), list(broker, rulesPath)]);
  return [
    element("h1", {}, name),
    element("p", {}, "Subscription to ", element("a", { href: `#/entity/${encodeURIComponent(topic)}` }, topic),
      ", ", statusOf(subscription)),
    rulesPart(broker, rulesPath, rules, again),
    peekPart(broker, path),
    element("h2", {}, "Properties"),
    propertiesTable(subscription.values),
    deletingPart(broker, path, { canEmpty: true }),
  ];
}

function rulesPart(broker, path, rules, again) {
  const name = element("input", { name: "rule", required: true, autocomplete: "off" });
  const filter = element("input", { name: "filter", required: true, size: "40", placeholder: "region = 'north' AND amount > 10" });
  const drop = (rule) =>
    element("button", { onclick: async () => {
      await remove(broker, `${path}/${encodeURIComponent(rule.name)}`);
      again();
    } }, "Remove");
  return element("section", {},
    element("h2", {}, "Rules"),
    table([
      ["Name", (each) => each.name],
      ["Filter", (each) => element("code", {}, filterText(each.values))],
      ["", drop],
    ], rules, "There is none: the subscription gets nothing."),
    form({ class: "row" }, [field("New rule", name), field("SQL filter", filter)], "Add", async () => {
      const Filter = { type: "SqlFilter", expression: filter.value };
      await create(broker, `${path}/${encodeURIComponent(name.value)}`, "Rule", { Filter, Name: name.value });
      again();
    }));
}

function filterText(values) {
  if (values.SqlExpression) return values.SqlExpression;
  const fields = ["CorrelationId", "MessageId", "To", "ReplyTo", "Label", "SessionId", "ReplyToSessionId", "ContentType"];
  const said = fields.filter((each) => values[each]).map((each) => `${each} = '${values[each]}'`);
  if (values.Key) said.push(`${values.Key} = '${values.Value}', …`);
  return said.join(" AND ") || "everything";
}
