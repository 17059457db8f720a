// What an application on azservicebus does, against the namespace in the environment.
// Prints one line per promise: "ok KIND/NAME", or "not ok KIND/NAME: why".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

const patience = 20 * time.Second

type entities struct {
	queue, sessions string
	partitioned     bool
}

type scenario struct {
	name string
	run  func(context.Context, *azservicebus.Client, entities) error
}

var scenarios = []scenario{
	{"send-and-complete", sendAndComplete},
	{"a-message-without-id-gets-one", messageWithoutID},
	{"a-batch-arrives-whole", batch},
	{"abandon-counts-a-delivery", abandon},
	{"dead-letter-with-a-reason", deadLetter},
	{"defer-and-receive-by-number", deferral},
	{"schedule-arrives-on-time", schedule},
	{"cancel-what-is-scheduled", cancelScheduled},
	{"peek-leaves-messages-alone", peek},
	{"renew-a-lock", renew},
	{"a-session-keeps-order-and-state", sessionState},
	{"the-next-session-that-has-messages", nextSession},
	{"an-unknown-queue-is-not-found", unknownQueue},
	{"a-topic-copies-by-its-rules", topic},
	{"an-administrator-makes-changes-and-deletes", administration},
}

func main() {
	client, err := azservicebus.NewClientFromConnectionString(
		os.Getenv("SERVICEBUS_CONNECTION_STRING"),
		&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
	if err != nil {
		fmt.Println("not ok connection:", err)
		os.Exit(1)
	}
	failed := false
	for _, kind := range []string{"conventional", "partitioned"} {
		queue := os.Getenv("ENTITY_PREFIX") + kind
		for _, each := range scenarios {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := each.run(ctx, client, entities{queue, queue + "-sessions", kind == "partitioned"})
			cancel()
			if err == nil {
				fmt.Printf("ok %s/%s\n", kind, each.name)
			} else {
				failed = true
				why := strings.ReplaceAll(err.Error(), "\n", " ")
				fmt.Printf("not ok %s/%s: %s\n", kind, each.name, why)
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}

func expect(holds bool, format string, values ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, values...)
}

func send(
	ctx context.Context, client *azservicebus.Client, queue string, messages ...*azservicebus.Message,
) error {
	sender, err := client.NewSender(queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	for _, message := range messages {
		if err := sender.SendMessage(ctx, message, nil); err != nil {
			return err
		}
	}
	return nil
}

// Both kinds of receiver can do this.
type taker interface {
	ReceiveMessages(
		context.Context, int, *azservicebus.ReceiveMessagesOptions,
	) ([]*azservicebus.ReceivedMessage, error)
}

func take(ctx context.Context, from taker, count int) ([]*azservicebus.ReceivedMessage, error) {
	var taken []*azservicebus.ReceivedMessage
	for len(taken) < count {
		messages, err := from.ReceiveMessages(ctx, count-len(taken), nil)
		if err != nil {
			return nil, fmt.Errorf("%d of %d messages came: %w", len(taken), count, err)
		}
		taken = append(taken, messages...)
	}
	return taken, nil
}

// Sends one message to a queue, takes it, and lets use() do with it what a promise is about.
func withOne(
	ctx context.Context, client *azservicebus.Client, queue string, message *azservicebus.Message,
	use func(*azservicebus.Receiver, *azservicebus.ReceivedMessage) error,
) error {
	if err := send(ctx, client, queue, message); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	messages, err := take(ctx, receiver, 1)
	if err != nil {
		return err
	}
	return use(receiver, messages[0])
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func sendAndComplete(ctx context.Context, client *azservicebus.Client, e entities) error {
	id, subject := "m-1", "order"
	message := text("hello")
	message.MessageID, message.Subject = &id, &subject
	message.ApplicationProperties = map[string]any{"region": "north", "amount": 12.5, "paid": true}
	return withOne(ctx, client, e.queue, message,
		func(receiver *azservicebus.Receiver, got *azservicebus.ReceivedMessage) error {
			properties := got.ApplicationProperties
			return errors.Join(
				expect(string(got.Body) == "hello", "body %q", got.Body),
				expect(got.MessageID == id, "id %q", got.MessageID),
				expect(got.Subject != nil && *got.Subject == subject, "subject %v", got.Subject),
				expect(properties["region"] == "north", "region %v", properties["region"]),
				expect(properties["amount"] == 12.5, "amount %v", properties["amount"]),
				receiver.CompleteMessage(ctx, got, nil),
				isEmpty(ctx, receiver))
		})
}

func isEmpty(ctx context.Context, receiver *azservicebus.Receiver) error {
	left, err := receiver.PeekMessages(ctx, 1, nil)
	return errors.Join(err, expect(len(left) == 0, "%d messages are left", len(left)))
}

func messageWithoutID(ctx context.Context, client *azservicebus.Client, e entities) error {
	return withOne(ctx, client, e.queue, text("no id"),
		func(receiver *azservicebus.Receiver, got *azservicebus.ReceivedMessage) error {
			return errors.Join(
				expect(got.MessageID != "", "it has none"), receiver.CompleteMessage(ctx, got, nil))
		})
}

func batch(ctx context.Context, client *azservicebus.Client, e entities) error {
	sender, err := client.NewSender(e.queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	messages, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for number := range 100 {
		if err := messages.AddMessage(text(fmt.Sprint(number)), nil); err != nil {
			return err
		}
	}
	if err := sender.SendMessageBatch(ctx, messages, nil); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue(e.queue,
		&azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	taken, err := take(ctx, receiver, 100)
	bodies := map[string]bool{}
	for _, each := range taken {
		bodies[string(each.Body)] = true
	}
	return errors.Join(err, expect(len(bodies) == 100, "%d of 100 came", len(bodies)))
}

func abandon(ctx context.Context, client *azservicebus.Client, e entities) error {
	return withOne(ctx, client, e.queue, text("again"),
		func(receiver *azservicebus.Receiver, first *azservicebus.ReceivedMessage) error {
			options := &azservicebus.AbandonMessageOptions{
				PropertiesToModify: map[string]any{"attempt": "one"}}
			if err := receiver.AbandonMessage(ctx, first, options); err != nil {
				return err
			}
			messages, err := take(ctx, receiver, 1)
			if err != nil {
				return err
			}
			second := messages[0]
			attempt := second.ApplicationProperties["attempt"]
			return errors.Join(
				expect(second.DeliveryCount == first.DeliveryCount+1, "count %d", second.DeliveryCount),
				expect(attempt == "one", "attempt %v", attempt),
				receiver.CompleteMessage(ctx, second, nil))
		})
}

func deadLetter(ctx context.Context, client *azservicebus.Client, e entities) error {
	reason, description := "Spoilt", "It smells."
	err := withOne(ctx, client, e.queue, text("bad"),
		func(receiver *azservicebus.Receiver, got *azservicebus.ReceivedMessage) error {
			return receiver.DeadLetterMessage(ctx, got, &azservicebus.DeadLetterOptions{
				Reason: &reason, ErrorDescription: &description})
		})
	if err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue(e.queue,
		&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	messages, err := take(ctx, receiver, 1)
	if err != nil {
		return err
	}
	got := messages[0]
	return errors.Join(
		expect(got.DeadLetterReason != nil && *got.DeadLetterReason == reason, "another reason"),
		expect(got.DeadLetterErrorDescription != nil &&
			*got.DeadLetterErrorDescription == description, "another description"),
		receiver.CompleteMessage(ctx, got, nil))
}

func deferral(ctx context.Context, client *azservicebus.Client, e entities) error {
	return withOne(ctx, client, e.queue, text("later"),
		func(receiver *azservicebus.Receiver, got *azservicebus.ReceivedMessage) error {
			if err := receiver.DeferMessage(ctx, got, nil); err != nil {
				return err
			}
			numbers := []int64{*got.SequenceNumber}
			deferred, err := receiver.ReceiveDeferredMessages(ctx, numbers, nil)
			if err != nil {
				return err
			}
			return errors.Join(
				expect(string(deferred[0].Body) == "later", "body %q", deferred[0].Body),
				receiver.CompleteMessage(ctx, deferred[0], nil))
		})
}

func schedule(ctx context.Context, client *azservicebus.Client, e entities) error {
	sender, err := client.NewSender(e.queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	due := time.Now().Add(1500 * time.Millisecond)
	messages := []*azservicebus.Message{text("scheduled")}
	if _, err := sender.ScheduleMessages(ctx, messages, due, nil); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue(e.queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	taken, err := take(ctx, receiver, 1)
	if err != nil {
		return err
	}
	return errors.Join(
		expect(time.Now().After(due.Add(-50*time.Millisecond)), "it came before its time"),
		expect(string(taken[0].Body) == "scheduled", "body %q", taken[0].Body),
		receiver.CompleteMessage(ctx, taken[0], nil))
}

func cancelScheduled(ctx context.Context, client *azservicebus.Client, e entities) error {
	sender, err := client.NewSender(e.queue, nil)
	if err != nil {
		return err
	}
	defer sender.Close(ctx)
	messages := []*azservicebus.Message{text("never")}
	numbers, err := sender.ScheduleMessages(ctx, messages, time.Now().Add(time.Hour), nil)
	if err != nil {
		return err
	}
	if err := sender.CancelScheduledMessages(ctx, numbers, nil); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue(e.queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	return isEmpty(ctx, receiver)
}

func peek(ctx context.Context, client *azservicebus.Client, e entities) error {
	if err := send(ctx, client, e.queue, text("seen")); err != nil {
		return err
	}
	receiver, err := client.NewReceiverForQueue(e.queue, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	peeked, err := receiver.PeekMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	taken, err := take(ctx, receiver, 1)
	if err != nil {
		return err
	}
	return errors.Join(
		expect(len(peeked) == 1, "%d were peeked", len(peeked)),
		expect(*peeked[0].SequenceNumber == *taken[0].SequenceNumber, "another number"),
		receiver.CompleteMessage(ctx, taken[0], nil))
}

func renew(ctx context.Context, client *azservicebus.Client, e entities) error {
	return withOne(ctx, client, e.queue, text("long work"),
		func(receiver *azservicebus.Receiver, got *azservicebus.ReceivedMessage) error {
			before := *got.LockedUntil
			time.Sleep(20 * time.Millisecond)
			return errors.Join(
				receiver.RenewMessageLock(ctx, got, nil),
				expect(got.LockedUntil.After(before), "the lock is not longer"),
				receiver.CompleteMessage(ctx, got, nil))
		})
}

func sessionState(ctx context.Context, client *azservicebus.Client, e entities) error {
	cart := "cart-1"
	for number := range 10 {
		message := text(fmt.Sprint(number))
		message.SessionID = &cart
		if err := send(ctx, client, e.sessions, message); err != nil {
			return err
		}
	}
	receiver, err := client.AcceptSessionForQueue(ctx, e.sessions, cart, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	taken, err := take(ctx, receiver, 10)
	if err != nil {
		return err
	}
	for number, each := range taken {
		if string(each.Body) != fmt.Sprint(number) {
			return fmt.Errorf("%q came in place %d", each.Body, number)
		}
		if err := receiver.CompleteMessage(ctx, each, nil); err != nil {
			return err
		}
	}
	_, busy := client.AcceptSessionForQueue(ctx, e.sessions, cart, nil)
	isLocked := busy != nil && strings.Contains(busy.Error(), "session-cannot-be-locked")
	err = errors.Join(
		expect(isLocked, "a locked session was given twice: %v", busy),
		receiver.SetSessionState(ctx, []byte("seen 10"), nil),
		receiver.RenewSessionLock(ctx, nil),
		receiver.Close(ctx))
	if err != nil {
		return err
	}
	again, err := client.AcceptSessionForQueue(ctx, e.sessions, cart, nil)
	if err != nil {
		return err
	}
	defer again.Close(ctx)
	state, err := again.GetSessionState(ctx, nil)
	return errors.Join(err, expect(string(state) == "seen 10", "state %q", state),
		again.SetSessionState(ctx, nil, nil))
}

func nextSession(ctx context.Context, client *azservicebus.Client, e entities) error {
	cart := "cart-2"
	message := text("mine")
	message.SessionID = &cart
	if err := send(ctx, client, e.sessions, message); err != nil {
		return err
	}
	receiver, err := client.AcceptNextSessionForQueue(ctx, e.sessions, nil)
	if err != nil {
		return err
	}
	defer receiver.Close(ctx)
	taken, err := take(ctx, receiver, 1)
	if err != nil {
		return err
	}
	return errors.Join(
		expect(receiver.SessionID() == cart, "session %q", receiver.SessionID()),
		receiver.CompleteMessage(ctx, taken[0], nil))
}

func unknownQueue(ctx context.Context, client *azservicebus.Client, _ entities) error {
	err := send(ctx, client, "there-is-no-such-queue", text("lost"))
	var refused *azservicebus.Error
	isNotFound := errors.As(err, &refused) && refused.Code == azservicebus.CodeNotFound
	return expect(isNotFound, "another answer: %v", err)
}

// It speaks HTTPS only; whom to trust is in SSL_CERT_FILE.
func administrator() (*admin.Client, error) {
	return admin.NewClientFromConnectionString(os.Getenv("SERVICEBUS_TLS_CONNECTION_STRING"), nil)
}

func administration(ctx context.Context, _ *azservicebus.Client, e entities) error {
	manager, err := administrator()
	if err != nil {
		return err
	}
	name := e.queue + "-made"
	made, err := manager.CreateQueue(ctx, name, &admin.CreateQueueOptions{
		Properties: &admin.QueueProperties{
			EnablePartitioning: to.Ptr(e.partitioned), LockDuration: to.Ptr("PT45S")}})
	if err != nil {
		return err
	}
	_, twice := manager.CreateQueue(ctx, name, nil)
	properties := made.QueueProperties
	properties.MaxDeliveryCount = to.Ptr(int32(7))
	changed, err := manager.UpdateQueue(ctx, name, properties, nil)
	if err != nil {
		return err
	}
	counts, err := manager.GetQueueRuntimeProperties(ctx, name, nil)
	if err != nil {
		return err
	}
	isListed := false
	for pages := manager.NewListQueuesPager(nil); pages.More() && !isListed; {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, each := range page.Queues {
			isListed = isListed || each.QueueName == name
		}
	}
	_, err = manager.DeleteQueue(ctx, name, nil)
	gone, goneErr := manager.GetQueue(ctx, name, nil)
	return errors.Join(err, goneErr,
		expect(*made.EnablePartitioning == e.partitioned, "another partitioning"),
		expect(*made.LockDuration == "PT45S", "lock %s", *made.LockDuration),
		expect(twice != nil, "it was made twice"),
		expect(*changed.MaxDeliveryCount == 7, "count %d", *changed.MaxDeliveryCount),
		expect(counts.TotalMessageCount == 0, "%d messages", counts.TotalMessageCount),
		expect(isListed, "it is not listed"),
		expect(gone == nil, "it is still there"))
}

func topic(ctx context.Context, client *azservicebus.Client, e entities) error {
	manager, err := administrator()
	if err != nil {
		return err
	}
	name := e.queue + "-made-topic"
	if _, err = manager.CreateTopic(ctx, name, &admin.CreateTopicOptions{
		Properties: &admin.TopicProperties{EnablePartitioning: to.Ptr(e.partitioned)}}); err != nil {
		return err
	}
	for _, subscription := range []string{"all", "north"} {
		if _, err = manager.CreateSubscription(ctx, name, subscription, nil); err != nil {
			return err
		}
	}
	_, err = manager.CreateRule(ctx, name, "north", &admin.CreateRuleOptions{
		Name: to.Ptr("only"), Filter: &admin.SQLFilter{Expression: "region = 'north'"},
		Action: &admin.SQLAction{Expression: "SET seen = 'yes'"}})
	if err != nil {
		return err
	}
	if _, err = manager.DeleteRule(ctx, name, "north", "$Default", nil); err != nil {
		return err
	}
	for _, region := range []string{"north", "south"} {
		message := text(region)
		message.ApplicationProperties = map[string]any{"region": region}
		if err = send(ctx, client, name, message); err != nil {
			return err
		}
	}
	all, err := fromSubscription(ctx, client, name, "all", 2)
	if err != nil {
		return err
	}
	north, err := fromSubscription(ctx, client, name, "north", 1)
	if err != nil {
		return err
	}
	return errors.Join(
		expect(len(all) == 2, "%d came to all", len(all)),
		expect(string(north[0].Body) == "north", "body %q", north[0].Body),
		expect(north[0].ApplicationProperties["seen"] == "yes", "the action was not done"))
}

func fromSubscription(
	ctx context.Context, client *azservicebus.Client, topic, subscription string, count int,
) ([]*azservicebus.ReceivedMessage, error) {
	receiver, err := client.NewReceiverForSubscription(topic, subscription, nil)
	if err != nil {
		return nil, err
	}
	defer receiver.Close(ctx)
	messages, err := take(ctx, receiver, count)
	for _, each := range messages {
		err = errors.Join(err, receiver.CompleteMessage(ctx, each, nil))
	}
	return messages, err
}
