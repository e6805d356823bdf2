package idemlambda

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// sqsQueue is the handler of a queue.
type sqsQueue struct {
	engine *idem.Engine
	op     idem.Operation
	key    SQSKeyFunc
	opts   SQSOptions
	decode func(body string) (sqsWork, error)
}

// sqsMessage is a message on its way through a batch.
type sqsMessage struct {
	ctx context.Context // of its hook
	msg *events.SQSMessage
	key idem.Key
	out SQSOutcome
}

// sqsBatch is one invocation.
type sqsBatch struct {
	*sqsQueue
	mu   sync.Mutex
	keys map[string]*sqsShared
}

// sqsShared is what the messages of a batch with the same key share. Its channel
// holds one token, which a message has while it runs: waiting for a channel ends
// no bubble of testing/synctest, waiting for a mutex does.
type sqsShared struct {
	turn chan struct{}
	done map[idem.Fingerprint]SQSOutcome
}

func (q *sqsQueue) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	ctx, cancel := sqsTime(ctx)
	defer cancel()
	b := &sqsBatch{sqsQueue: q, keys: map[string]*sqsShared{}}
	ms := make([]sqsMessage, len(event.Records))
	for i := range event.Records {
		msg := &event.Records[i]
		ms[i] = sqsMessage{ctx: context.WithValue(ctx, sqsMessageKey{}, msg), msg: msg, out: SQSOutcome{Message: msg}}
		b.findKey(&ms[i])
	}
	slots := make(chan struct{}, q.opts.Concurrency)
	var wg sync.WaitGroup
	for _, lane := range lanes(ms) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b.runLane(lane)
		})
	}
	wg.Wait()

	res := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	named := map[string]bool{}
	for i := range ms {
		if id := ms[i].msg.MessageId; !ms[i].out.Reason.Acknowledges() && !named[id] {
			named[id] = true
			res.BatchItemFailures = append(res.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
	}
	return res, nil
}

// sqsTime ends the batch's context at its guard. The engine counts a guard from
// each call's own begin, which gets shorter as the invocation's time runs out; the
// batch must answer as a whole, so its guard is fixed when it begins.
func sqsTime(ctx context.Context) (context.Context, context.CancelFunc) {
	kill, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	guard := min(idem.DefaultGuard, max(time.Until(kill), 0)/4)
	return context.WithDeadlineCause(idem.WithKillTime(ctx, kill), kill.Add(-guard), idem.ErrOutOfTime)
}

// lanes are the messages that run one after the other: those of a group of a FIFO
// queue, else those with the same key.
func lanes(ms []sqsMessage) [][]*sqsMessage {
	var all [][]*sqsMessage
	index := map[string]int{}
	for i := range ms {
		m := &ms[i]
		name := "key " + m.key.ID()
		if m.isFIFO() {
			name = "group " + m.group()
		} else if m.key.ID() == "" {
			all = append(all, []*sqsMessage{m})
			continue
		}
		at, ok := index[name]
		if !ok {
			at = len(all)
			index[name], all = at, append(all, nil)
		}
		all[at] = append(all[at], m)
	}
	return all
}

func (m *sqsMessage) group() string { return m.msg.Attributes["MessageGroupId"] }

// isFIFO asks for the ARN first: messages of standard queues may have a group too,
// which spreads them fairly and orders nothing.
func (m *sqsMessage) isFIFO() bool {
	if m.msg.EventSourceARN != "" {
		return strings.HasSuffix(m.msg.EventSourceARN, ".fifo")
	}
	return m.group() != ""
}

// findKey settles a message whose key cannot be found.
func (b *sqsBatch) findKey(m *sqsMessage) {
	defer b.recovered(m)
	tenant, value, err := b.key(m.ctx, m.msg)
	if err == nil {
		m.key = b.op.Key(tenant, value)
		m.out.KeyID = m.key.ID()
		err = m.key.Err()
	}
	if err != nil {
		m.out.Reason, m.out.Err = SQSKeyInvalid, err
	}
}

// runLane runs messages one after the other. Where it is a FIFO queue's group, it
// stops after the first that goes back.
func (b *sqsBatch) runLane(lane []*sqsMessage) {
	next, stopped := 0, false
	defer func() {
		// The handler has left its goroutine: the rest cannot be run on it any more.
		for ; next < len(lane); next++ {
			m := lane[next]
			if m.out.Reason == "" {
				m.out.Reason, m.out.Err = SQSPanicked, errGoexit
			}
			b.tell(m)
		}
	}()
	for next < len(lane) {
		m := lane[next]
		switch {
		case stopped:
			m.out.Reason, m.out.Err = SQSBehind, errBehind
		case m.out.Reason == "":
			b.run(m)
		}
		stopped = stopped || m.isFIFO() && !m.out.Reason.Acknowledges()
		next++
		b.tell(m)
	}
}

func (b *sqsBatch) run(m *sqsMessage) {
	defer b.recovered(m)
	work, err := b.decode(m.msg.Body)
	if err != nil {
		m.out.Reason, m.out.Err = SQSBodyUnreadable, err
		return
	}
	s := b.shared(m.key.ID())
	s.turn <- struct{}{}
	defer func() {
		s.done[work.fingerprint] = m.out
		<-s.turn
	}()
	if twin, ok := s.done[work.fingerprint]; ok {
		m.copy(twin)
		return
	}
	// Also told if the handler panics and this is its twin's answer.
	defer b.recovered(m)
	b.execute(m, work)
}

func (b *sqsBatch) shared(id string) *sqsShared {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.keys[id]
	if s == nil {
		s = &sqsShared{turn: make(chan struct{}, 1), done: map[idem.Fingerprint]SQSOutcome{}}
		b.keys[id] = s
	}
	return s
}

// copy answers a message as its twin in the batch: it would get the same answer
// from the store, or an uncertain one while the twin's outcome is not written yet.
func (m *sqsMessage) copy(twin SQSOutcome) {
	m.out = twin
	m.out.Message, m.out.Twin = m.msg, true
	if twin.Reason == SQSExecuted {
		m.out.Reason = SQSReplayed
	}
}

func (b *sqsBatch) execute(m *sqsMessage, work sqsWork) {
	ran := false
	out, err := b.engine.Execute(m.ctx, idem.Call{Key: m.key, Fingerprint: work.fingerprint, Run: func(ctx context.Context) idem.Answer {
		ran = true
		if err := work.run(ctx); err != nil {
			return idem.Answer{Err: recordable(err)}
		}
		return idem.Answer{Err: errNotCompleted, Class: idem.ClassCompleted}
	}})
	m.out.State, m.out.Attempt, m.out.Err = out.State, out.Attempt, err
	if ran && !out.Replayed && out.Attempt > 0 {
		m.out.Reason = reasonOfOwn(out, err)
		return
	}
	m.out.Reason = reasonOfAnswer(err)
}

// recovered ends a message whose handler, key function or decoder panics; a
// handler's attempt has been recorded by then.
func (b *sqsBatch) recovered(m *sqsMessage) {
	if r := recover(); r != nil {
		m.out.Reason, m.out.Err = SQSPanicked, &SQSPanicError{Value: r, Stack: debug.Stack()}
	}
}

var (
	errNotCompleted = errors.New("idemlambda: the handler returned no error, and its success is not the outcome")
	errGoexit       = errors.New("idemlambda: the handler ended its goroutine, with runtime.Goexit")
	errBehind       = errors.New("idemlambda: an earlier message of the group goes back to the queue")
)
