// What an application on @azure/service-bus does, against the namespace in the environment.
// Prints one line per promise: "ok KIND/NAME", or "not ok KIND/NAME: why".
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { strict as assert } from "node:assert";

const WAIT = { maxWaitTimeInMs: 5000 };
const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING, {
  retryOptions: { maxRetries: 0, timeoutInMs: 20000 },
});
// It speaks HTTPS only; whom to trust is in NODE_EXTRA_CA_CERTS.
const administration = new ServiceBusAdministrationClient(
  process.env.SERVICEBUS_TLS_CONNECTION_STRING,
);

async function send(queue, ...messages) {
  const sender = client.createSender(queue);
  await sender.sendMessages(messages);
  await sender.close();
}

async function take(receiver, count) {
  const taken = [];
  while (taken.length < count) {
    const messages = await receiver.receiveMessages(count - taken.length, WAIT);
    assert(messages.length > 0, `${taken.length} of ${count} messages came`);
    taken.push(...messages);
  }
  return taken;
}

async function withReceiver(queue, options, use) {
  const receiver = client.createReceiver(queue, options);
  try {
    return await use(receiver);
  } finally {
    await receiver.close();
  }
}

const scenarios = {
  async "send-and-complete"({ queue }) {
    await send(queue, {
      body: { order: 7 },
      messageId: "m-1",
      subject: "order",
      correlationId: "c-1",
      contentType: "application/json",
      applicationProperties: { region: "north", amount: 12.5, paid: true },
    });
    await withReceiver(queue, {}, async (receiver) => {
      const [message] = await take(receiver, 1);
      assert.deepEqual(message.body, { order: 7 });
      assert.equal(message.messageId, "m-1");
      assert.equal(message.subject, "order");
      assert.equal(message.applicationProperties.region, "north");
      assert.equal(message.applicationProperties.amount, 12.5);
      assert.equal(message.deliveryCount, 0);
      await receiver.completeMessage(message);
      assert.deepEqual(await receiver.peekMessages(1), []);
    });
  },

  async "a-message-without-id-gets-one"({ queue }) {
    await send(queue, { body: "no id" });
    await withReceiver(queue, {}, async (receiver) => {
      const [message] = await take(receiver, 1);
      assert(message.messageId);
      await receiver.completeMessage(message);
    });
  },

  async "a-batch-arrives-whole"({ queue }) {
    const sender = client.createSender(queue);
    const batch = await sender.createMessageBatch();
    for (let number = 0; number < 100; number++) assert(batch.tryAddMessage({ body: number }));
    await sender.sendMessages(batch);
    await sender.close();
    await withReceiver(queue, { receiveMode: "receiveAndDelete" }, async (receiver) => {
      const bodies = (await take(receiver, 100)).map((each) => each.body);
      assert.deepEqual(bodies.sort((a, b) => a - b), [...Array(100).keys()]);
    });
  },

  async "abandon-counts-a-delivery"({ queue }) {
    await send(queue, { body: "again", messageId: "abandoned" });
    await withReceiver(queue, {}, async (receiver) => {
      const [first] = await take(receiver, 1);
      await receiver.abandonMessage(first, { attempt: "one" });
      const [second] = await take(receiver, 1);
      assert.equal(second.deliveryCount, 1);
      assert.equal(second.applicationProperties.attempt, "one");
      await receiver.completeMessage(second);
    });
  },

  async "dead-letter-with-a-reason"({ queue }) {
    await send(queue, { body: "bad" });
    await withReceiver(queue, {}, async (receiver) => {
      const [message] = await take(receiver, 1);
      await receiver.deadLetterMessage(message, {
        deadLetterReason: "Spoilt",
        deadLetterErrorDescription: "It smells.",
      });
    });
    await withReceiver(queue, { subQueueType: "deadLetter" }, async (receiver) => {
      const [message] = await take(receiver, 1);
      assert.equal(message.deadLetterReason, "Spoilt");
      assert.equal(message.deadLetterErrorDescription, "It smells.");
      await receiver.completeMessage(message);
    });
  },

  async "defer-and-receive-by-number"({ queue }) {
    await send(queue, { body: "later" });
    await withReceiver(queue, {}, async (receiver) => {
      const [message] = await take(receiver, 1);
      await receiver.deferMessage(message);
      const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
      assert.equal(deferred.body, "later");
      assert.equal(deferred.state, "deferred");
      await receiver.completeMessage(deferred);
    });
  },

  async "schedule-arrives-on-time"({ queue }) {
    const sender = client.createSender(queue);
    const due = new Date(Date.now() + 1500);
    const [number] = await sender.scheduleMessages([{ body: "scheduled" }], due);
    await sender.close();
    await withReceiver(queue, {}, async (receiver) => {
      const [seen] = await receiver.peekMessages(1, { fromSequenceNumber: number });
      assert.equal(seen.state, "scheduled");
      const [message] = await take(receiver, 1);
      assert.equal(message.body, "scheduled");
      assert(Date.now() >= due.getTime() - 50, "it came before its time");
      await receiver.completeMessage(message);
    });
  },

  async "cancel-what-is-scheduled"({ queue }) {
    const sender = client.createSender(queue);
    const numbers = await sender.scheduleMessages(
      [{ body: "never" }], new Date(Date.now() + 3600_000),
    );
    await sender.cancelScheduledMessages(numbers);
    await sender.close();
    await withReceiver(queue, {}, async (receiver) => {
      assert.deepEqual(await receiver.peekMessages(1), []);
    });
  },

  async "peek-leaves-messages-alone"({ queue }) {
    await send(queue, { body: "seen" });
    await withReceiver(queue, {}, async (receiver) => {
      const [peeked] = await receiver.peekMessages(1);
      assert.equal(peeked.body, "seen");
      const [message] = await take(receiver, 1);
      assert(message.sequenceNumber.equals(peeked.sequenceNumber));
      await receiver.completeMessage(message);
    });
  },

  async "renew-a-lock"({ queue }) {
    await send(queue, { body: "long work" });
    await withReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 }, async (receiver) => {
      const [message] = await take(receiver, 1);
      const before = message.lockedUntilUtc;
      await new Promise((resolve) => setTimeout(resolve, 20));
      const until = await receiver.renewMessageLock(message);
      assert(until > before);
      await receiver.completeMessage(message);
    });
  },

  async "subscribe-gives-what-comes"({ queue }) {
    const receiver = client.createReceiver(queue);
    const bodies = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        async processMessage(message) {
          bodies.push(message.body);
          if (bodies.length === 20) resolve();
        },
        async processError({ error }) {
          reject(error);
        },
      });
      send(queue, ...[...Array(20).keys()].map((body) => ({ body }))).catch(reject);
    });
    await receiver.close();
    assert.deepEqual(bodies.sort((a, b) => a - b), [...Array(20).keys()]);
    await withReceiver(queue, {}, async (check) => {
      assert.deepEqual(await check.peekMessages(1), []);
    });
  },

  async "a-session-keeps-order-and-state"({ sessions }) {
    const numbers = [...Array(10).keys()];
    await send(sessions, ...numbers.map((body) => ({ body, sessionId: "cart-1" })));
    const receiver = await client.acceptSession(sessions, "cart-1");
    const messages = await take(receiver, 10);
    assert.deepEqual(messages.map((each) => each.body), numbers);
    for (const message of messages) await receiver.completeMessage(message);
    await receiver.setSessionState({ seen: 10 });
    assert((await receiver.renewSessionLock()) > new Date());
    await assert.rejects(client.acceptSession(sessions, "cart-1"), { code: "SessionCannotBeLocked" });
    await receiver.close();
    const again = await client.acceptSession(sessions, "cart-1");
    assert.deepEqual(await again.getSessionState(), { seen: 10 });
    await again.setSessionState(null);
    await again.close();
  },

  async "the-next-session-that-has-messages"({ sessions }) {
    await send(sessions, { body: "mine", sessionId: "cart-2" });
    const receiver = await client.acceptNextSession(sessions);
    assert.equal(receiver.sessionId, "cart-2");
    const [message] = await take(receiver, 1);
    await receiver.completeMessage(message);
    await receiver.close();
  },

  async "rules-choose-messages"({ topic }) {
    const manager = client.createRuleManager(topic, "sub");
    await manager.createRule("red", { sqlExpression: "color = 'red'" }, { sqlExpression: "SET n = n + 1" });
    await manager.createRule("orders", { subject: "order", applicationProperties: { color: "blue" } });
    await manager.deleteRule("$Default");
    await assert.rejects(manager.createRule("bad", { sqlExpression: "color =" }), /position 8/);
    const rules = [];
    for await (const rule of manager.listRules()) {
      rules.push(rule);
    }
    assert.deepEqual(rules.map((rule) => rule.name), ["red", "orders"]);
    assert.equal(rules[0].filter.sqlExpression, "color = 'red'");
    assert.equal(rules[0].action.sqlExpression, "SET n = n + 1");
    assert.equal(rules[1].filter.subject, "order");
    assert.deepEqual(rules[1].filter.applicationProperties, { color: "blue" });
    await send(
      topic,
      { body: "a", applicationProperties: { color: "red", n: 1 } },
      { body: "b", applicationProperties: { color: "green", n: 1 } },
      { body: "c", applicationProperties: { color: "blue", n: 1 }, subject: "order" },
    );
    const receiver = client.createReceiver(topic, "sub");
    const messages = await take(receiver, 2);
    for (const message of messages) {
      await receiver.completeMessage(message);
    }
    await receiver.close();
    const found = messages.map(({ body, applicationProperties: { n, RuleName } }) => [body, n, RuleName]);
    assert.deepEqual(found.sort(), [["a", 2, "red"], ["c", 1, undefined]]);
  },

  async "an-unknown-queue-is-not-found"() {
    const sender = client.createSender("there-is-no-such-queue");
    await assert.rejects(sender.sendMessages({ body: "lost" }), { code: "MessagingEntityNotFound" });
    await sender.close();
  },

  async "a-topic-copies-by-its-rules"({ queue, isPartitioned }) {
    const topic = `${queue}-made-topic`;
    await administration.createTopic(topic, { enablePartitioning: isPartitioned });
    await administration.createSubscription(topic, "all");
    await administration.createSubscription(topic, "north");
    await administration.createRule(
      topic, "north", "only",
      { sqlExpression: "region = @region", sqlParameters: { "@region": "north" } },
      { sqlExpression: "SET seen = 'yes'" },
    );
    await administration.deleteRule(topic, "north", "$Default");
    for (const region of ["north", "south"]) {
      await send(topic, { body: region, applicationProperties: { region } });
    }
    for (const [subscription, regions] of [["all", ["north", "south"]], ["north", ["north"]]]) {
      const receiver = client.createReceiver(topic, subscription);
      const messages = await take(receiver, regions.length);
      for (const message of messages) await receiver.completeMessage(message);
      assert.deepEqual(messages.map((each) => each.body).sort(), regions);
      const seen = messages.map((each) => each.applicationProperties.seen);
      assert.deepEqual(seen, subscription === "north" ? ["yes"] : [undefined, undefined]);
      await receiver.close();
    }
  },

  async "an-administrator-makes-changes-and-deletes"({ queue, isPartitioned }) {
    const name = `${queue}-made`;
    const made = await administration.createQueue(name, {
      enablePartitioning: isPartitioned,
      lockDuration: "PT45S",
    });
    assert.equal(made.enablePartitioning, isPartitioned);
    assert.equal(made.lockDuration, "PT45S");
    await assert.rejects(administration.createQueue(name), { code: "MessageEntityAlreadyExistsError" });
    made.maxDeliveryCount = 7;
    assert.equal((await administration.updateQueue(made)).maxDeliveryCount, 7);
    await send(name, { body: "counted" });
    const counts = await administration.getQueueRuntimeProperties(name);
    assert.equal(counts.activeMessageCount, 1);
    const names = [];
    for await (const each of administration.listQueues()) names.push(each.name);
    assert(names.includes(name));
    await administration.deleteQueue(name);
    assert.equal(await administration.queueExists(name), false);
  },
};

let failed = 0;
for (const kind of ["conventional", "partitioned"]) {
  const queue = `${process.env.ENTITY_PREFIX}${kind}`;
  const entities = {
    queue,
    sessions: `${queue}-sessions`,
    topic: `${queue}-topic`,
    isPartitioned: kind === "partitioned",
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
await client.close();
process.exit(failed ? 1 : 0);
