package sqsvisibility

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/stretchr/testify/require"
)

const queue = "arn:aws:sqs:eu-central-1:111122223333:orders"

// fake is a queue service that notes how long it hides what.
type fake struct {
	hidden map[string]int32 // by receipt
	sizes  []int            // of the calls
	urls   []string
	asked  int
	err    error
	urlErr error
	refuse string // this receipt
}

func (f *fake) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput,
	_ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	f.sizes, f.urls = append(f.sizes, len(in.Entries)), append(f.urls, *in.QueueUrl)
	if f.err != nil {
		return nil, f.err
	}
	res := &sqs.ChangeMessageVisibilityBatchOutput{}
	seen := map[string]bool{}
	for _, e := range in.Entries {
		if seen[*e.Id] {
			return nil, errors.New("BatchEntryIdsNotDistinct")
		}
		seen[*e.Id] = true
		if *e.ReceiptHandle == f.refuse {
			res.Failed = append(res.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("MessageNotInflight"),
				Message: aws.String("too late")})
			continue
		}
		if f.hidden == nil {
			f.hidden = map[string]int32{}
		}
		f.hidden[*e.ReceiptHandle] = e.VisibilityTimeout
	}
	return res, nil
}

func (f *fake) GetQueueUrl(_ context.Context, in *sqs.GetQueueUrlInput,
	_ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	f.asked++
	if f.urlErr != nil {
		return nil, f.urlErr
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String("https://sqs/" + *in.QueueOwnerAWSAccountId + "/" + *in.QueueName)},
		nil
}

func outcome(receipt string, until time.Time) idemlambda.SQSDelivery {
	return idemlambda.SQSDelivery{
		Event: &events.SQSMessage{MessageId: "m-" + receipt, ReceiptHandle: receipt, EventSourceARN: queue,
			Attributes: map[string]string{}},
		Reason:     idemlambda.ReasonInFlight,
		LeaseUntil: until,
	}
}

func TestHidesUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		first := func(out idemlambda.SQSDelivery, received time.Time, count string) idemlambda.SQSDelivery {
			out.Event.Attributes["ApproximateReceiveCount"] = count
			out.Event.Attributes["ApproximateFirstReceiveTimestamp"] = fmt.Sprint(received.UnixMilli())
			return out
		}
		back := []idemlambda.SQSDelivery{
			outcome("later", now.Add(30*time.Second)),
			outcome("part of a second", now.Add(1200*time.Millisecond)),
			outcome("over", now.Add(-time.Minute)),
			outcome("far away", now.Add(24*time.Hour)),
			first(outcome("far away, long ago", now.Add(24*time.Hour)), now.Add(-2*time.Hour), "1"),
			first(outcome("far away, again", now.Add(24*time.Hour)), now.Add(-2*time.Hour), "2"),
			first(outcome("too late", now.Add(24*time.Hour)), now.Add(-13*time.Hour), "1"),
			{Event: &events.SQSMessage{ReceiptHandle: "released", EventSourceARN: queue}, Reason: idemlambda.ReasonReleased},
		}
		f := &fake{}
		hide := New(f, nil)
		hide(t.Context(), back)
		require.Equal(t, map[string]int32{
			"later": 31, "part of a second": 3, "over": 0,
			"far away": 12*3600 - 1200, "far away, long ago": 10 * 3600, "far away, again": 12*3600 - 1200, "too late": 0,
		}, f.hidden)
		require.Equal(t, []int{7}, f.sizes)
		require.Equal(t, []string{"https://sqs/111122223333/orders"}, f.urls)

		hide(t.Context(), back[:1])
		require.Equal(t, 1, f.asked, "for the URL, once")

		f = &fake{}
		New(f, &Options{QueueURL: "http://127.0.0.1/orders", Margin: 5 * time.Second})(t.Context(), back[:1])
		require.Equal(t, map[string]int32{"later": 35}, f.hidden)
		require.Equal(t, []string{"http://127.0.0.1/orders"}, f.urls)
		require.Zero(t, f.asked)
	})
}

// A message that a limit refuses waits for the window's end, and then for twice as long each time, so
// that it can wait for long with the receives that it has.
func TestHidesForLongerEachTimeWhereALimitIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, waited := &fake{}, 0
		hide := New(f, nil)
		for n, least := range map[int]int{0: 1, 1: 1, 2: 2, 5: 16, 10: 450, 100: 450} {
			for range 50 {
				out := outcome("m", time.Now().Add(59*time.Second))
				out.Reason = idemlambda.ReasonLimitExceeded
				out.Event.Attributes["ApproximateReceiveCount"] = fmt.Sprint(n)
				hide(t.Context(), []idemlambda.SQSDelivery{out})
				got := int(f.hidden["m"]) - 60
				require.GreaterOrEqual(t, got, least, n)
				require.LessOrEqual(t, got, 2*least, n)
			}
		}
		for n := 1; n <= 100; n++ {
			if want, ok := map[int]int{5: 15, 10: 8 * 60, 20: 83 * 60, 100: 11 * 3600}[n]; ok {
				require.GreaterOrEqual(t, waited, want, "as the package says, before receive %d", n)
			}
			waited += min(1<<min(n-1, 9), 450)
		}
	})
}

// A message of a paused operation waits for as long as the pause has lasted, up to 15 minutes, as does one behind it.
func TestHidesForAsLongAsAPauseHasLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := &fake{}, time.Now()
		hide := New(f, nil)
		pause := protocol.Pause{Since: began}
		says := map[int]time.Duration{5: 33 * time.Minute, 6: 45 * time.Minute, 10: 100 * time.Minute,
			20: 230 * time.Minute, 100: 21 * time.Hour}
		for receive := 1; receive <= 100; receive++ {
			age := time.Since(began)
			if least, ok := says[receive]; ok {
				require.GreaterOrEqual(t, age, least, "as the package says, before receive %d", receive)
			}
			if more := receive - 6; more >= 0 {
				require.GreaterOrEqual(t, age, 45*time.Minute+time.Duration(more)*time.Hour/5, "five receives an hour")
			}
			out := outcome("m", time.Now().Add(pause.RetryAfter(time.Now())))
			out.Reason = idemlambda.ReasonPaused
			out.Event.Attributes["ApproximateReceiveCount"] = fmt.Sprint(receive)
			behind := outcome("behind", out.LeaseUntil)
			behind.Reason = idemlambda.ReasonBlocked
			hide(t.Context(), []idemlambda.SQSDelivery{out, behind})
			got, want := time.Duration(f.hidden["m"])*time.Second, max(age, 5*time.Minute)
			require.GreaterOrEqual(t, got, min(want, 15*time.Minute*9/10))
			require.LessOrEqual(t, got, min(want+want/10+2*time.Second, 15*time.Minute))
			require.LessOrEqual(t, f.hidden["behind"], int32(15*60))
			time.Sleep(got)
		}
		for _, left := range []time.Duration{5 * time.Minute, time.Hour} { // those hidden together do not come together
			var all []idemlambda.SQSDelivery
			for n := range 20 {
				out := outcome(fmt.Sprint("together ", n), time.Now().Add(left))
				out.Reason = idemlambda.ReasonPaused
				all = append(all, out)
			}
			hide(t.Context(), all)
			apart := map[int32]bool{}
			for n := range 20 {
				apart[f.hidden[fmt.Sprint("together ", n)]] = true
			}
			require.Greater(t, len(apart), 5)
		}
		pause.Until = time.Now().Add(time.Minute)
		out := outcome("m", time.Now().Add(pause.RetryAfter(time.Now())))
		out.Reason = idemlambda.ReasonPaused
		hide(t.Context(), []idemlambda.SQSDelivery{out})
		require.InDelta(t, 64, f.hidden["m"], 4)
	})
}

// Faults are logged each time, and the calls are made again with the next batch.
func TestFaults(t *testing.T) {
	var log bytes.Buffer
	f := &fake{err: errors.New("dead endpoint")}
	hide := New(f, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	back := []idemlambda.SQSDelivery{outcome("r1", time.Now().Add(time.Minute)),
		outcome("r2", time.Now().Add(time.Minute))}
	hide(t.Context(), back)
	hide(t.Context(), back)
	require.Equal(t, 2, strings.Count(log.String(), "dead endpoint"))

	f.urlErr = errors.New("denied")
	New(f, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})(t.Context(), back)
	require.Contains(t, log.String(), "denied")

	log.Reset()
	f.err, f.refuse = nil, "r1"
	hide(t.Context(), back)
	require.Contains(t, log.String(), "m-r1")
	require.Contains(t, log.String(), "MessageNotInflight: too late")
	require.Contains(t, f.hidden, "r2")

	log.Reset()
	odd := outcome("r3", time.Now().Add(time.Minute))
	odd.Event.EventSourceARN = "no arn"
	hide(t.Context(), []idemlambda.SQSDelivery{odd})
	require.Contains(t, log.String(), "no arn")
}

func TestMistakes(t *testing.T) {
	require.PanicsWithError(t, "idem: sqsvisibility.New: the client is nil: make one with sqs.NewFromConfig", func() {
		New(nil, nil)
	})
	require.PanicsWithError(t, "idem: sqsvisibility.New: Margin is -1s: it cannot be negative",
		func() { New(&fake{}, &Options{Margin: -time.Second}) })
}

// receive takes messages until there are n, as a function gets them.
func receive(t *testing.T, q queuetest.Queue, n int) (all []idemlambda.SQSDelivery) {
	t.Helper()
	for len(all) < n {
		res, err := q.Client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q.URL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		require.NoError(t, err)
		require.NotEmpty(t, res.Messages, "the queue gives no more")
		for _, m := range res.Messages {
			all = append(all, idemlambda.SQSDelivery{Event: &events.SQSMessage{
				MessageId: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Body: *m.Body, Attributes: m.Attributes,
				EventSourceARN: q.ARN,
			}})
		}
	}
	return all
}

// On a real queue: messages that would be hidden for ten minutes are redelivered when
// the lease is over, and others do not.
func TestHidesOnAServer(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprintf("fifo %v", fifo), func(t *testing.T) {
			const n = 12
			q, _ := queuetest.Full(t, fifo, n+1)
			back := receive(t, q, n+1)
			sooner := map[string]bool{}
			for i := range back[:n] {
				back[i].Reason, back[i].LeaseUntil = idemlambda.ReasonInFlight, time.Now()
				sooner[back[i].Event.Body] = true
			}
			back[n].Reason = idemlambda.ReasonReleased
			var log bytes.Buffer
			New(q.Client, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})(t.Context(), back)
			require.Empty(t, log.String())
			for _, again := range receive(t, q, n) {
				require.True(t, sooner[again.Event.Body])
				require.Equal(t, "2", again.Event.Attributes["ApproximateReceiveCount"])
			}
		})
	}
}

func TestTenMessagesACall(t *testing.T) {
	var back []idemlambda.SQSDelivery
	for i := range 23 {
		back = append(back, outcome(fmt.Sprint(i), time.Now().Add(time.Minute)))
	}
	f := &fake{}
	New(f, nil)(t.Context(), back)
	require.Equal(t, []int{10, 10, 3}, f.sizes)
	require.Len(t, f.hidden, 23)
}
