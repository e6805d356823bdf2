package readme

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// Announce may run again: receivers know an event by the change's id.
var Announce = idem.Operation{Name: "announce", Repeat: idem.Repeatable}

// together sends what handlers that run at the same time hand over, up to ten changes in a call.
type together struct {
	put     func(context.Context, []events.DynamoDBEventRecord) []error // an error, or nil, for each
	sending chan struct{}                                               // one call at a time
	mu      sync.Mutex
	waiting []handedOver
}

type handedOver struct {
	change events.DynamoDBEventRecord
	sent   chan error
}

// send returns when the change is sent: by this call, or by that of another change.
func (s *together) send(ctx context.Context, change events.DynamoDBEventRecord) error {
	mine := handedOver{change, make(chan error, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, mine)
	s.mu.Unlock()
	for {
		select {
		case err := <-mine.sent:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case s.sending <- struct{}{}:
			s.putSome(ctx)
		}
	}
}

// putSome answers each change that it takes, also if put panics.
func (s *together) putSome(ctx context.Context) {
	defer func() { <-s.sending }()
	s.mu.Lock()
	n := min(len(s.waiting), 10)
	some := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	s.mu.Unlock()
	if n == 0 {
		return
	}
	errs := slices.Repeat([]error{errors.New("not sent")}, n)
	defer func() {
		for i, w := range some {
			w.sent <- errs[i]
		}
	}()
	changes := make([]events.DynamoDBEventRecord, n)
	for i, w := range some {
		changes[i] = w.change
	}
	copy(errs, s.put(ctx, changes))
}

func announcer(engine *idem.Engine,
	put func(context.Context, []events.DynamoDBEventRecord) []error) idemlambda.DynamoDBStreamHandler {
	out := &together{put: put, sending: make(chan struct{}, 1)}
	return idemlambda.DynamoDBStream(engine, Announce, nil,
		&idemlambda.Options[events.DynamoDBEventRecord]{Concurrency: 100}, out.send)
}

// bus takes ten events in a call, and counts.
type bus struct {
	mu    sync.Mutex
	calls int
	got   map[string]int // by the change's id
}

func (b *bus) put(_ context.Context, changes []events.DynamoDBEventRecord) []error {
	time.Sleep(20 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	for _, c := range changes {
		b.got[c.EventID]++
	}
	return make([]error, len(changes))
}

// deliver gives changes to a handler.
type deliver = func(context.Context, []events.DynamoDBEventRecord) error

// batchWays are those of the table, in its order.
var batchWays = []func(*idem.Engine, *bus) deliver{
	func(e *idem.Engine, b *bus) deliver {
		return streamOf(idemlambda.DynamoDBStream(e, Announce, nil, nil,
			func(ctx context.Context, c events.DynamoDBEventRecord) error {
				return b.put(ctx, []events.DynamoDBEventRecord{c})[0]
			}))
	},
	func(e *idem.Engine, b *bus) deliver {
		return streamOf(announcer(e, b.put))
	},
	func(e *idem.Engine, b *bus) deliver {
		return func(ctx context.Context, changes []events.DynamoDBEventRecord) error {
			for group := range slices.Chunk(changes, 10) {
				borders := group[0].EventID + " to " + group[len(group)-1].EventID
				_, err := idem.Do(ctx, e, Announce.Key(idem.SingleTenant, borders), group,
					func(ctx context.Context, group []events.DynamoDBEventRecord) (int, error) {
						return len(group), b.put(ctx, group)[0]
					})
				if err != nil {
					return err
				}
			}
			return nil
		}
	},
	func(_ *idem.Engine, b *bus) deliver {
		return func(ctx context.Context, changes []events.DynamoDBEventRecord) error {
			for group := range slices.Chunk(changes, 10) {
				b.put(ctx, group)
			}
			return nil
		}
	},
}

func streamOf(h idemlambda.DynamoDBStreamHandler) deliver {
	return func(ctx context.Context, changes []events.DynamoDBEventRecord) error {
		res, err := h(ctx, events.DynamoDBEvent{Records: changes})
		if err == nil && len(res.BatchItemFailures) > 0 {
			err = fmt.Errorf("%v", res.BatchItemFailures)
		}
		return err
	}
}

// changesOf are so many changes, of an item each.
func changesOf(n int) []events.DynamoDBEventRecord {
	changes := make([]events.DynamoDBEventRecord, n)
	for i := range changes {
		id := strconv.Itoa(i)
		changes[i] = events.DynamoDBEventRecord{EventID: id, EventSourceArn: "arn:aws:dynamodb:table/t/stream/s",
			Change: events.DynamoDBStreamRecord{SequenceNumber: id,
				Keys: map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(id)}}}
	}
	return changes
}

// Each row of the table of batches is played: the batch, and the batch without its first five records.
func TestWaysToSendABatch(t *testing.T) {
	rows := endRow.FindAllStringSubmatch(sectionOf(t, "lambda/README.md", "Many records, one call"), -1)[1:]
	require.Len(t, rows, len(batchWays))
	changes := changesOf(1000)
	for i, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, b := idemtest.New(t, nil), &bus{got: map[string]int{}}
				deliver := batchWays[i](h.Engine, b)
				require.NoError(t, deliver(t.Context(), changes))
				require.Equal(t, strings.ReplaceAll(row[2], ",", ""), strconv.Itoa(len(h.Faults.Calls())))
				calls, err := strconv.Atoi(strings.ReplaceAll(strings.TrimPrefix(row[3], "about "), ",", ""))
				require.NoError(t, err)
				require.InDelta(t, calls, b.calls, 1)
				require.NoError(t, deliver(t.Context(), changes[5:]))
				again := 0
				for _, n := range b.got {
					again += n - 1
				}
				require.Len(t, b.got, len(changes))
				require.Equal(t, row[4], strings.Replace(fmt.Sprintf("sends %d again", again), " 0 ", " nothing ", 1))
			})
		})
	}
}

// A panic of put, or too few answers of it, leaves no change waiting: what was sent is acknowledged, and the rest
// comes again.
func TestWhatSendsTogetherAnswersEach(t *testing.T) {
	changes := changesOf(12)
	for name, put := range map[string]func([]events.DynamoDBEventRecord) []error{
		"panics":          func([]events.DynamoDBEventRecord) []error { panic("put") },
		"answers too few": func(c []events.DynamoDBEventRecord) []error { return make([]error, len(c)/2) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad := true
				deliver := streamOf(announcer(idemtest.New(t, nil).Engine,
					func(_ context.Context, c []events.DynamoDBEventRecord) []error {
						if bad {
							return put(c)
						}
						return make([]error, len(c))
					}))
				require.Error(t, deliver(t.Context(), changes))
				bad = false
				require.NoError(t, deliver(t.Context(), changes))
			})
		})
	}
}

// The README says how many messages run at the same time.
func TestMessagesOfABatchRunAtTheSameTime(t *testing.T) {
	const up = "**Messages of a batch run at the same time**, up to ten:"
	require.Contains(t, strings.ReplaceAll(read(t, "README.md"), "\n", " "), up)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		messages := make([]events.SQSMessage, 30)
		for i := range messages {
			messages[i] = events.SQSMessage{MessageId: strconv.Itoa(i), Body: strconv.Itoa(i)}
		}
		byID := func(_ context.Context, m *events.SQSMessage) (tenant, value string, err error) {
			return idem.SingleTenant, m.MessageId, nil
		}
		handler := idemlambda.SQS(idemtest.New(t, nil).Engine, Announce, byID, nil, func(context.Context, string) error {
			count(1)
			time.Sleep(time.Second)
			count(-1)
			return nil
		})
		res, err := handler(t.Context(), events.SQSEvent{Records: messages})
		require.NoError(t, err)
		require.Empty(t, res.BatchItemFailures)
		require.Equal(t, 10, most)
	})
}
