// What an application does with the administration client of @azure/service-bus, over TLS.
// Prints one line per promise: "ok KIND/NAME", or "not ok KIND/NAME: why".
import { ServiceBusAdministrationClient } from "@azure/service-bus";
import { strict as assert } from "node:assert";

const admin = new ServiceBusAdministrationClient(process.env.SERVICEBUS_TLS_CONNECTION_STRING, {
  retryOptions: { maxRetries: 0 },
});

async function names(pages) {
  const found = [];
  for await (const each of pages) found.push(each.subscriptionName ?? each.name);
  return found;
}

const scenarios = {
  async "a-queue-lives"({ name, enablePartitioning }) {
    const made = await admin.createQueue(name, { enablePartitioning, lockDuration: "PT30S" });
    assert.equal(made.enablePartitioning, enablePartitioning);
    assert.equal(made.maxSizeInMegabytes, enablePartitioning ? 16384 : 1024);
    assert.equal(await admin.queueExists(name), true);
    const found = await admin.getQueue(name);
    found.maxDeliveryCount = 3;
    await admin.updateQueue(found);
    assert.equal((await admin.getQueue(name)).maxDeliveryCount, 3);
    assert((await names(admin.listQueues())).includes(name));
    const runtime = await admin.getQueueRuntimeProperties(name);
    assert.equal(runtime.totalMessageCount, 0);
    await assert.rejects(admin.createQueue(name), { statusCode: 409 });
    found.requiresSession = true;
    await assert.rejects(admin.updateQueue(found), { statusCode: 400 });
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
    await assert.rejects(admin.deleteQueue(name), { statusCode: 404 });
  },

  async "topics-and-subscriptions-live"({ name, enablePartitioning }) {
    await admin.createTopic(name, { enablePartitioning, userMetadata: "kept" });
    await admin.createSubscription(name, "first", { lockDuration: "PT20S" });
    await admin.createSubscription(name, "second");
    assert.deepEqual(await names(admin.listSubscriptions(name)), ["first", "second"]);
    const subscription = await admin.getSubscription(name, "first");
    assert.equal(subscription.lockDuration, "PT20S");
    subscription.maxDeliveryCount = 5;
    await admin.updateSubscription(subscription);
    assert.equal((await admin.getSubscription(name, "first")).maxDeliveryCount, 5);
    assert.equal((await admin.getTopic(name)).userMetadata, "kept");
    assert.equal((await admin.getTopicRuntimeProperties(name)).subscriptionCount, 2);
    await admin.deleteSubscription(name, "second");
    assert.equal(await admin.subscriptionExists(name, "second"), false);
    await admin.deleteTopic(name);
    assert.equal(await admin.topicExists(name), false);
  },

  async "rules-keep-their-filters"({ name, enablePartitioning }) {
    await admin.createTopic(name, { enablePartitioning });
    await admin.createSubscription(name, "s");
    const filter = {
      subject: "order",
      applicationProperties: { region: "north", amount: 12, paid: true, due: new Date(0) },
    };
    await admin.createRule(name, "s", "same", filter, {
      sqlExpression: "SET priority = @high",
      sqlParameters: { "@high": 3 },
    });
    const same = await admin.getRule(name, "s", "same");
    assert.equal(same.filter.subject, "order");
    assert.equal(same.filter.applicationProperties.region, "north");
    assert.equal(same.filter.applicationProperties.amount, 12);
    assert.equal(same.filter.applicationProperties.paid, true);
    assert.deepEqual(same.action.sqlParameters, { "@high": 3 });
    await admin.createRule(name, "s", "sql", { sqlExpression: "amount > 10" });
    assert.deepEqual(await names(admin.listRules(name, "s")), ["$Default", "same", "sql"]);
    assert.equal((await admin.getRule(name, "s", "$Default")).filter.sqlExpression, "1=1");
    await admin.deleteRule(name, "s", "$Default");
    assert.equal(await admin.ruleExists(name, "s", "$Default"), false);
    await assert.rejects(admin.createRule(name, "s", "bad", { sqlExpression: "a >" }), {
      statusCode: 400,
    });
    await admin.deleteTopic(name);
  },

  async "the-namespace-says-what-it-is"() {
    assert.equal((await admin.getNamespaceProperties()).messagingSku, "Standard");
  },
};

let failed = 0;
for (const kind of ["conventional", "partitioned"]) {
  const entities = {
    name: `${process.env.ENTITY_PREFIX}${kind}-administered`,
    enablePartitioning: kind === "partitioned",
  };
  for (const [name, run] of Object.entries(scenarios)) {
    try {
      await run(entities);
      console.log(`ok ${kind}/${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${kind}/${name}: ${String(error.message ?? error).replaceAll("\n", " ")}`);
    }
  }
}
process.exit(failed ? 1 : 0);
