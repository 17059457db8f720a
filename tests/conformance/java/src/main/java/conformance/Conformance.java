package conformance;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.BinaryData;
import com.azure.core.util.IterableStream;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.net.URL;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What an application on azure-messaging-servicebus does, against the namespace in the environment.
 * Prints one line per promise: "ok KIND/NAME", or "not ok KIND/NAME: why".
 */
public final class Conformance {
    private static final Duration WAIT = Duration.ofSeconds(5);

    private interface Scenario {
        void run() throws Exception;
    }

    private final String queue;
    private final String sessions;
    private final boolean isPartitioned;

    private Conformance(String queue, boolean isPartitioned) {
        this.queue = queue;
        this.isPartitioned = isPartitioned;
        this.sessions = queue + "-sessions";
    }

    public static void main(String[] arguments) {
        boolean failed = false;
        for (String kind : List.of("conventional", "partitioned")) {
            Conformance promises = new Conformance(
                System.getenv("ENTITY_PREFIX") + kind, kind.equals("partitioned"));
            for (Map.Entry<String, Scenario> each : promises.scenarios().entrySet()) {
                try {
                    each.getValue().run();
                    System.out.printf("ok %s/%s%n", kind, each.getKey());
                } catch (Exception | AssertionError error) {
                    failed = true;
                    String why = String.valueOf(error).replace('\n', ' ');
                    System.out.printf("not ok %s/%s: %s%n", kind, each.getKey(), why);
                }
            }
        }
        // The SDK's own threads would keep the process alive for a while.
        System.exit(failed ? 1 : 0);
    }

    private Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("send-and-complete", this::sendAndComplete);
        all.put("a-message-without-id-gets-one", this::messageWithoutId);
        all.put("a-batch-arrives-whole", this::batch);
        all.put("abandon-counts-a-delivery", this::abandon);
        all.put("dead-letter-with-a-reason", this::deadLetter);
        all.put("defer-and-receive-by-number", this::deferral);
        all.put("schedule-arrives-on-time", this::schedule);
        all.put("cancel-what-is-scheduled", this::cancelScheduled);
        all.put("peek-leaves-messages-alone", this::peek);
        all.put("renew-a-lock", this::renew);
        all.put("a-transaction-commits-and-rolls-back", this::transaction);
        all.put("a-session-keeps-order-and-state", this::sessionState);
        all.put("the-next-session-that-has-messages", this::nextSession);
        all.put("an-unknown-queue-is-not-found", this::unknownQueue);
        all.put("a-topic-copies-by-its-rules", this::topic);
        all.put("an-administrator-makes-changes-and-deletes", this::administration);
        return all;
    }

    private void sendAndComplete() {
        ServiceBusMessage message = new ServiceBusMessage("hello").setMessageId("m-1").setSubject("order");
        message.getApplicationProperties().put("region", "north");
        message.getApplicationProperties().put("amount", 12.5);
        send(queue, message);
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            expect("hello", got.getBody().toString());
            expect("m-1", got.getMessageId());
            expect("order", got.getSubject());
            expect("north", got.getApplicationProperties().get("region"));
            expect(12.5, got.getApplicationProperties().get("amount"));
            expect(0L, got.getDeliveryCount());
            receiver.complete(got);
            expect(null, receiver.peekMessage());
        }
    }

    private void messageWithoutId() {
        send(queue, new ServiceBusMessage("no id"));
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            expect(true, got.getMessageId() != null && !got.getMessageId().isEmpty());
            receiver.complete(got);
        }
    }

    private void batch() {
        try (ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient()) {
            ServiceBusMessageBatch messages = sender.createMessageBatch();
            for (int number = 0; number < 100; number++) {
                expect(true, messages.tryAddMessage(new ServiceBusMessage(String.valueOf(number))));
            }
            sender.sendMessages(messages);
        }
        try (ServiceBusReceiverClient receiver = builder().receiver().queueName(queue)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            Set<String> bodies = new HashSet<>();
            take(receiver, 100).forEach(each -> bodies.add(each.getBody().toString()));
            expect(100, bodies.size());
        }
    }

    private void abandon() {
        send(queue, new ServiceBusMessage("again"));
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage first = take(receiver, 1).get(0);
            receiver.abandon(first, new AbandonOptions().setPropertiesToModify(Map.of("attempt", "one")));
            ServiceBusReceivedMessage second = take(receiver, 1).get(0);
            expect(1L, second.getDeliveryCount());
            expect("one", second.getApplicationProperties().get("attempt"));
            receiver.complete(second);
        }
    }

    private void deadLetter() {
        send(queue, new ServiceBusMessage("bad"));
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            receiver.deadLetter(take(receiver, 1).get(0), new DeadLetterOptions()
                .setDeadLetterReason("Spoilt").setDeadLetterErrorDescription("It smells."));
        }
        try (ServiceBusReceiverClient receiver = builder().receiver().queueName(queue)
                .subQueue(SubQueue.DEAD_LETTER_QUEUE).maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            expect("Spoilt", got.getDeadLetterReason());
            expect("It smells.", got.getDeadLetterErrorDescription());
            receiver.complete(got);
        }
    }

    private void deferral() {
        send(queue, new ServiceBusMessage("later"));
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            receiver.defer(got);
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.getSequenceNumber());
            expect("later", deferred.getBody().toString());
            receiver.complete(deferred);
        }
    }

    private void schedule() {
        OffsetDateTime due = OffsetDateTime.now().plusNanos(1_500_000_000L);
        try (ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient()) {
            sender.scheduleMessage(new ServiceBusMessage("scheduled"), due);
        }
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            expect("scheduled", got.getBody().toString());
            expect(true, OffsetDateTime.now().isAfter(due.minusNanos(50_000_000L)));
            receiver.complete(got);
        }
    }

    private void cancelScheduled() {
        try (ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient()) {
            long number = sender.scheduleMessage(
                new ServiceBusMessage("never"), OffsetDateTime.now().plusHours(1));
            sender.cancelScheduledMessage(number);
        }
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            expect(null, receiver.peekMessage());
        }
    }

    private void peek() {
        send(queue, new ServiceBusMessage("seen"));
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage peeked = receiver.peekMessage();
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            expect(peeked.getSequenceNumber(), got.getSequenceNumber());
            receiver.complete(got);
        }
    }

    private void renew() throws InterruptedException {
        send(queue, new ServiceBusMessage("long work"));
        try (ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusReceivedMessage got = take(receiver, 1).get(0);
            OffsetDateTime before = got.getLockedUntil();
            Thread.sleep(20);
            expect(true, receiver.renewMessageLock(got).isAfter(before));
            receiver.complete(got);
        }
    }

    private void transaction() {
        try (ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient();
                ServiceBusReceiverClient receiver = receiver(queue)) {
            ServiceBusTransactionContext undone = sender.createTransaction();
            sender.sendMessage(keyed("undone"), undone);
            sender.rollbackTransaction(undone);
            ServiceBusTransactionContext done = sender.createTransaction();
            sender.sendMessage(keyed("one"), done);
            sender.sendMessage(keyed("two"), done);
            expect(null, receiver.peekMessage());
            sender.commitTransaction(done);
            List<ServiceBusReceivedMessage> messages = take(receiver, 2);
            ServiceBusTransactionContext completing = receiver.createTransaction();
            for (ServiceBusReceivedMessage each : messages) {
                receiver.complete(each, new CompleteOptions().setTransactionContext(completing));
            }
            receiver.commitTransaction(completing);
            expect(null, receiver.peekMessage());
        }
    }

    private void sessionState() {
        for (int number = 0; number < 10; number++) {
            send(sessions, new ServiceBusMessage(String.valueOf(number)).setSessionId("cart-1"));
        }
        try (ServiceBusSessionReceiverClient door = door();
                ServiceBusReceiverClient receiver = door.acceptSession("cart-1")) {
            int next = 0;
            for (ServiceBusReceivedMessage each : take(receiver, 10)) {
                expect(String.valueOf(next++), each.getBody().toString());
                receiver.complete(each);
            }
            receiver.setSessionState("seen 10".getBytes());
            expect(true, receiver.renewSessionLock().isAfter(OffsetDateTime.now()));
        }
        try (ServiceBusSessionReceiverClient door = door();
                ServiceBusReceiverClient again = door.acceptSession("cart-1")) {
            expect("seen 10", new String(again.getSessionState()));
            again.setSessionState(null);
        }
    }

    private void nextSession() {
        send(sessions, new ServiceBusMessage("mine").setSessionId("cart-2"));
        try (ServiceBusSessionReceiverClient door = door();
                ServiceBusReceiverClient receiver = door.acceptNextSession()) {
            expect("cart-2", receiver.getSessionId());
            receiver.complete(take(receiver, 1).get(0));
        }
    }

    private void unknownQueue() {
        try {
            send("there-is-no-such-queue", new ServiceBusMessage("lost"));
        } catch (ServiceBusException error) {
            expect(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, error.getReason());
            return;
        }
        throw new AssertionError("it was taken");
    }

    /** It asks https://host only, on port 443; a policy says where the broker's port is. */
    private static ServiceBusAdministrationClient administrator() {
        String text = System.getenv("SERVICEBUS_TLS_CONNECTION_STRING");
        int port = URI.create(text.replaceAll("(?i).*Endpoint=([^;]*).*", "$1")).getPort();
        HttpPipelinePolicy toPort = (context, next) -> {
            URL url = context.getHttpRequest().getUrl();
            context.getHttpRequest().setUrl(
                url.getProtocol() + "://" + url.getHost() + ":" + port + url.getFile());
            return next.process();
        };
        return new ServiceBusAdministrationClientBuilder()
            .connectionString(text).addPolicy(toPort).buildClient();
    }

    private void administration() {
        ServiceBusAdministrationClient admin = administrator();
        String name = queue + "-made";
        QueueProperties made = admin.createQueue(name, new CreateQueueOptions()
            .setPartitioningEnabled(isPartitioned).setLockDuration(Duration.ofSeconds(45)));
        expect(isPartitioned, made.isPartitioningEnabled());
        expect(Duration.ofSeconds(45), made.getLockDuration());
        try {
            admin.createQueue(name);
            throw new AssertionError("it was made twice");
        } catch (ResourceExistsException taken) {
            expect(true, admin.getQueueExists(name));
        }
        expect(7, admin.updateQueue(made.setMaxDeliveryCount(7)).getMaxDeliveryCount());
        send(name, new ServiceBusMessage("counted"));
        expect(1, admin.getQueueRuntimeProperties(name).getActiveMessageCount());
        expect(true, admin.listQueues().stream().anyMatch(each -> each.getName().equals(name)));
        admin.deleteQueue(name);
        expect(false, admin.getQueueExists(name));
    }

    private void topic() {
        ServiceBusAdministrationClient admin = administrator();
        String name = queue + "-made-topic";
        admin.createTopic(name, new CreateTopicOptions().setPartitioningEnabled(isPartitioned));
        admin.createSubscription(name, "all");
        admin.createSubscription(name, "north");
        admin.createRule(name, "only", "north",
            new CreateRuleOptions(new SqlRuleFilter("region = 'north'"))
                .setAction(new SqlRuleAction("SET seen = 'yes'")));
        admin.deleteRule(name, "north", "$Default");
        try (ServiceBusSenderClient sender = builder().sender().topicName(name).buildClient()) {
            for (String region : List.of("north", "south")) {
                ServiceBusMessage message = new ServiceBusMessage(region);
                message.getApplicationProperties().put("region", region);
                sender.sendMessage(message);
            }
        }
        expect(2, fromSubscription(name, "all", 2).size());
        ServiceBusReceivedMessage north = fromSubscription(name, "north", 1).get(0);
        expect("north", north.getBody().toString());
        expect("yes", north.getApplicationProperties().get("seen"));
    }

    private static List<ServiceBusReceivedMessage> fromSubscription(
            String topic, String subscription, int count) {
        try (ServiceBusReceiverClient receiver = builder().receiver().topicName(topic)
                .subscriptionName(subscription).maxAutoLockRenewDuration(Duration.ZERO).buildClient()) {
            List<ServiceBusReceivedMessage> taken = take(receiver, count);
            taken.forEach(receiver::complete);
            return taken;
        }
    }

    private static ServiceBusMessage keyed(String body) {
        return new ServiceBusMessage(BinaryData.fromString(body)).setPartitionKey("key");
    }

    private static ServiceBusClientBuilder builder() {
        return new ServiceBusClientBuilder()
            .connectionString(System.getenv("SERVICEBUS_CONNECTION_STRING"))
            .retryOptions(new AmqpRetryOptions().setMaxRetries(1).setTryTimeout(Duration.ofSeconds(20)));
    }

    private static ServiceBusReceiverClient receiver(String queue) {
        return builder().receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient();
    }

    private ServiceBusSessionReceiverClient door() {
        return builder().sessionReceiver().queueName(sessions).maxAutoLockRenewDuration(Duration.ZERO)
            .buildClient();
    }

    private static void send(String queue, ServiceBusMessage message) {
        try (ServiceBusSenderClient sender = builder().sender().queueName(queue).buildClient()) {
            sender.sendMessage(message);
        }
    }

    private static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> taken = new ArrayList<>();
        while (taken.size() < count) {
            IterableStream<ServiceBusReceivedMessage> messages =
                receiver.receiveMessages(count - taken.size(), WAIT);
            int before = taken.size();
            messages.forEach(taken::add);
            if (taken.size() == before) {
                throw new AssertionError(before + " of " + count + " messages came");
            }
        }
        return taken;
    }

    private static void expect(Object expected, Object actual) {
        if (expected == null ? actual != null : !expected.equals(actual)) {
            throw new AssertionError("expected " + expected + ", got " + actual);
        }
    }
}
