package idemlambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// sqsReturnTime is what the Returned hook has: one call for every ten messages,
// and a retry.
const sqsReturnTime = 2 * time.Second

// sqsQueue is the handler of a queue.
type sqsQueue struct {
	engine *idem.Engine
	op     idem.Operation
	key    SQSKeyFunc
	opts   SQSOptions
	open   func(body string) (sqsWork, error)
}

// sqsBatch is one invocation.
type sqsBatch struct {
	*sqsQueue
	mu    sync.Mutex
	twins map[sqsIdentity]*sqsTwin
}

// sqsIdentity is what twins in a batch have in common.
type sqsIdentity struct {
	key         string
	fingerprint idem.Fingerprint
}

// sqsTwin is the first message of its identity, to which the others listen. Its
// outcome is there when the channel is closed.
type sqsTwin struct {
	done chan struct{}
	out  SQSOutcome
}

// sqsMessage is a message on its way through a batch.
type sqsMessage struct {
	ctx context.Context
	msg *events.SQSMessage
	out SQSOutcome
}

func (q *sqsQueue) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	b := &sqsBatch{sqsQueue: q, twins: map[sqsIdentity]*sqsTwin{}}
	ms := make([]sqsMessage, len(event.Records))
	b.work(ctx, ms, event.Records)

	res := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	var back []SQSOutcome
	named := map[string]bool{}
	for i := range ms {
		m := &ms[i]
		if m.out.Reason.Acknowledges() {
			continue
		}
		back = append(back, m.out)
		// A message without an id, which SQS does not send, cannot be named: Lambda
		// takes an empty name for the failure of the whole batch, which loses nothing.
		if id := m.msg.MessageId; !named[id] {
			named[id] = true
			res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
	}
	b.returned(ctx, back)
	return res, nil
}

// work runs the messages until each has its outcome.
func (b *sqsBatch) work(ctx context.Context, ms []sqsMessage, records []events.SQSMessage) {
	ctx, cancel := sqsTime(ctx)
	defer cancel()
	for i := range records {
		msg := &records[i]
		ms[i] = sqsMessage{ctx: context.WithValue(ctx, sqsMessageKey{}, msg), msg: msg, out: SQSOutcome{Message: msg}}
	}
	slots := make(chan struct{}, b.opts.Concurrency)
	var wg sync.WaitGroup
	for _, lane := range lanes(ms) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b.workLane(lane)
		})
	}
	wg.Wait()
}

// sqsTime ends the batch's context at its guard. The engine counts a guard from
// each call's own begin, which gets shorter as the invocation's time runs out; the
// batch must answer as a whole, so its guard is fixed when it begins.
func sqsTime(ctx context.Context) (context.Context, context.CancelFunc) {
	kill, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	guard := sqsGuard(time.Until(kill))
	return context.WithDeadlineCause(idem.WithKillTime(ctx, kill), kill.Add(-guard), idem.ErrOutOfTime)
}

// sqsGuard is how long before its kill time an invocation of the length ends its
// handlers.
func sqsGuard(whole time.Duration) time.Duration { return min(idem.DefaultGuard, max(whole, 0)/4) }

// lanes are the messages that run one after the other: those of a group of a FIFO
// queue.
func lanes(ms []sqsMessage) [][]*sqsMessage {
	all := make([][]*sqsMessage, 0, len(ms))
	groups := map[string]int{}
	for i := range ms {
		m := &ms[i]
		if !m.isFIFO() {
			all = append(all, []*sqsMessage{m})
			continue
		}
		group := m.msg.Attributes[sqsGroup]
		at, ok := groups[group]
		if !ok {
			at = len(all)
			groups[group], all = at, append(all, nil)
		}
		all[at] = append(all[at], m)
	}
	return all
}

const sqsGroup = "MessageGroupId"

// isFIFO asks for the ARN first: messages of standard queues may have a group too,
// which spreads them fairly and orders nothing.
func (m *sqsMessage) isFIFO() bool {
	if m.msg.EventSourceARN != "" {
		return strings.HasSuffix(m.msg.EventSourceARN, ".fifo")
	}
	return m.msg.Attributes[sqsGroup] != ""
}

// workLane settles messages one after the other, each on a goroutine of its own:
// what ends that goroutine ends nothing else. The rest of a FIFO queue's group
// stays behind the first that goes back.
func (b *sqsBatch) workLane(lane []*sqsMessage) {
	var stop *sqsMessage
	for _, m := range lane {
		alone(func() {
			defer b.tell(m)
			if stop == nil {
				b.settle(m)
				return
			}
			m.out.Reason, m.out.Err, m.out.LeaseUntil = SQSBehind, errBehind, stop.out.LeaseUntil
		})
		if stop == nil && m.isFIFO() && !m.out.Reason.Acknowledges() {
			stop = m
		}
	}
}

// alone calls f and returns when f or its goroutine has ended.
func alone(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	<-over
}

func (b *sqsBatch) settle(m *sqsMessage) {
	b.run(m)
	if m.out.Reason == SQSFailed && b.opts.Parking != nil {
		b.park(m)
	}
}

// run gives a message its outcome, however the handler, the key function or the
// decoder ends.
func (b *sqsBatch) run(m *sqsMessage) {
	defer m.ended()
	work, err := b.open(m.msg.Body)
	if err != nil {
		m.out.Reason, m.out.Err = SQSBodyUnreadable, err
		return
	}
	tenant, value, err := b.key(m.ctx, m.msg)
	key := b.op.Key(tenant, value)
	if err == nil {
		err = key.Err()
	}
	if err != nil {
		m.out.Reason, m.out.Err = SQSKeyInvalid, err
		return
	}
	m.out.KeyID = key.ID()
	t, first := b.twin(sqsIdentity{key.ID(), work.fingerprint})
	if !first {
		<-t.done
		m.share(t.out)
		return
	}
	defer func() {
		t.out = m.out
		close(t.done)
	}()
	defer m.ended()
	b.execute(m, key, work)
}

// twin returns what the messages of the identity share, and whether it is new.
func (b *sqsBatch) twin(id sqsIdentity) (t *sqsTwin, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t = b.twins[id]; t != nil {
		return t, false
	}
	t = &sqsTwin{done: make(chan struct{})}
	b.twins[id] = t
	return t, true
}

// share answers a message as its twin in the batch: the store would say the same,
// or less where the twin's outcome is not written yet.
func (m *sqsMessage) share(twin SQSOutcome) {
	m.out = twin
	m.out.Message, m.out.Twin = m.msg, true
	if twin.Reason == SQSExecuted {
		m.out.Reason = SQSReplayed
	}
}

func (b *sqsBatch) execute(m *sqsMessage, key idem.Key, work sqsWork) {
	out, err := b.engine.Execute(m.ctx, idem.Call{Key: key, Fingerprint: work.fingerprint, Run: func(ctx context.Context) idem.Answer {
		return idem.Answer{Err: work.run(ctx)}
	}})
	m.out.Err, m.out.State, m.out.Attempt, m.out.Failure = err, out.State, out.Attempt, out.Failure
	if out.Ended != "" {
		m.out.Reason = reasonOfOwn(out)
		if err == nil && m.out.Reason != SQSExecuted {
			m.out.Err = errNotCompleted
		}
		return
	}
	m.out.Reason = reasonOfAnswer(err)
	switch m.out.Reason {
	case SQSUnknown:
		m.out.State = idem.Unknown
	case SQSAccepted:
		m.out.State = idem.Pending
	case SQSInFlight:
		m.out.State = idem.InProgress
	}
	var twin *idem.InFlightError
	if errors.As(err, &twin) && twin.Attempt > 0 {
		m.out.Attempt, m.out.LeaseUntil = twin.Attempt, time.Now().Add(twin.LeaseLeft)
	}
}

// ended settles a message whose handler, key function or decoder panicked or left
// its goroutine; a handler's attempt has been recorded by then.
func (m *sqsMessage) ended() {
	if r := recover(); r != nil {
		m.out.Reason, m.out.Err = SQSPanicked, &SQSPanicError{Value: r, Stack: debug.Stack()}
	} else if m.out.Reason == "" {
		m.out.Reason, m.out.Err = SQSPanicked, errGoexit
	}
}

// park hands a failed message over. Until that is done it goes back.
func (b *sqsBatch) park(m *sqsMessage) {
	failed := m.out
	m.out.Reason, m.out.Err = SQSNotParked, errGoexit
	defer func() {
		if r := recover(); r != nil {
			m.out.Err = &SQSPanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	if err := b.opts.Parking(m.ctx, failed); err != nil {
		m.out.Err = fmt.Errorf("idemlambda: the failed message could not be parked: %w", err)
		return
	}
	m.out = failed
}

// returned hands the messages that go back to the hook.
func (b *sqsBatch) returned(ctx context.Context, back []SQSOutcome) {
	if b.opts.Returned == nil || len(back) == 0 {
		return
	}
	limit := sqsReturnTime
	if kill, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(kill)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	alone(func() {
		defer func() {
			if r := recover(); r != nil {
				b.logger().LogAttrs(ctx, slog.LevelError, "idem: the Returned hook panicked", slog.String("panic", fmt.Sprint(r)))
			}
		}()
		b.opts.Returned(ctx, back)
	})
}

var (
	errNotCompleted = errors.New("idemlambda: the handler returned no error, and its success is not the outcome")
	errGoexit       = errors.New("idemlambda: the function ended its goroutine, with runtime.Goexit")
	errBehind       = errors.New("idemlambda: an earlier message of the group goes back to the queue")
)
