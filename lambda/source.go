package idemlambda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// RecordKeyFunc finds tenant and value of the key in a record of an event. It
// returns [idem.NoTenant] as the tenant where there is none. It must not change or
// keep the record and must be safe for concurrent use. With an error the record
// is redelivered and nothing is executed.
type RecordKeyFunc[R any] func(ctx context.Context, record *R) (tenant, value string, err error)

// Options of the handlers of an event source. Nil and zero fields mean the
// defaults. The functions run on the invocation's path: they should be quick, and
// must be safe for concurrent use. A panic in them is logged or reported and costs
// nothing else anything.
type Options[R any] struct {
	// Concurrency is how many records of an event run side by side at most, where the
	// source's order allows it. Zero means the source's default.
	Concurrency int

	// Select says which parts of a JSON body tell one record from another of the same
	// key; nil means all. Handlers that take string or []byte, and those that take the
	// record itself, have none.
	Select *idem.Select

	// OnFailed gets a record whose permanent failure is recorded, before the record is
	// acknowledged, such as to forward it. After an error the record is redelivered and
	// OnFailed gets it again, so it may be forwarded twice. A record that is redelivered
	// because of another one is not forwarded before it is acknowledged. Nil
	// acknowledges without it.
	OnFailed func(context.Context, Delivery[R]) error

	// OnOutcome is told what became of every record, once for each, for metrics. Nil
	// means nobody.
	OnOutcome func(context.Context, Delivery[R])

	// Logger gets a line for every record: panics as errors; as warnings recorded
	// failures and what is redelivered for a reason of its own; at info level what only
	// has to wait; the rest at debug level. Bodies and keys' values are not logged,
	// handlers' errors are. Nil means slog.Default.
	Logger *slog.Logger
}

// source delivers the records of an event, whatever service they come from.
type source[R any] struct {
	what   string // the constructor, in errors
	noun   string // what a record is called, in logs
	engine *idem.Engine
	op     idem.Operation
	key    RecordKeyFunc[R]
	opts   Options[R]
	// open decodes a record and prepares its work.
	open func(*R) (job, error)
	// name tells a record from others, in logs.
	name func(*R) string
	// also is what logs say of a record besides its name; nil for nothing.
	also func(*R) slog.Attr
	// lane names the records that run one after the other and stop at the first that
	// is redelivered; false means that the record stands alone.
	lane func(*R) (string, bool)
	// window is how long the service may deliver a record again.
	window window
	// redeliverFrom is the place from which on the service redelivers all records, also
	// those that are done; nil where it redelivers single records.
	redeliverFrom func([]delivery[R]) int
}

// job is a record's body, ready to be worked on.
type job struct {
	fingerprint idem.Fingerprint
	run         func(context.Context) error
}

// check reports mistakes in the set-up.
func (s *source[R]) check(noHandler, text bool) error {
	bad := func(problem string) error {
		return &idem.ConfigError{What: fmt.Sprintf("%s of operation %q", s.what, s.op.Name), Problem: problem}
	}
	switch {
	case s.engine == nil:
		return bad("the engine is nil: make one with idem.New")
	case s.op.Check() != nil:
		return s.op.Check()
	case s.key == nil:
		return bad("the key function is nil: say where the key is, such as idemlambda.SQSAttribute(idem.NoTenant, idemlambda.SQSKeyAttribute)")
	case noHandler:
		return bad("the handler is nil")
	case s.opts.Concurrency < 0:
		return bad(fmt.Sprintf("Concurrency is %d: use at least 1, or zero for the default", s.opts.Concurrency))
	case s.opts.Select.Check() != nil:
		return s.opts.Select.Check()
	case s.opts.Select != nil && text:
		return bad("Select is set, and the handler does not take JSON: take a type that JSON decodes into, such as json.RawMessage")
	}
	return s.window.check(s.what, s.op, s.logger())
}

func (s *source[R]) logger() *slog.Logger {
	if s.opts.Logger == nil {
		return slog.Default()
	}
	return s.opts.Logger
}

type recordKey[R any] struct{}

// recordOf returns the record whose handler, key function or hook has the context.
func recordOf[R any](ctx context.Context) (R, bool) {
	r, ok := ctx.Value(recordKey[R]{}).(*R)
	if !ok {
		return *new(R), false
	}
	return *r, true
}

// deliver runs the records until each has its outcome, in the order of the event.
func (s *source[R]) deliver(ctx context.Context, records []R) []delivery[R] {
	ctx, cancel := untilGuard(ctx)
	defer cancel()
	b := &batch[R]{source: s, twins: map[identity]*twin[R]{}, last: map[string]*twin[R]{}}
	ds := make([]delivery[R], len(records))
	for i := range records {
		r := &records[i]
		ds[i] = delivery[R]{ctx: context.WithValue(ctx, recordKey[R]{}, r), name: s.name(r), at: i, out: Delivery[R]{Event: r}}
	}
	slots := make(chan struct{}, s.opts.Concurrency)
	var wg sync.WaitGroup
	before := make(chan struct{})
	close(before)
	for _, lane := range s.lanes(ds) {
		slots <- struct{}{}
		lane[0].turn = &turn{before: before, mine: make(chan struct{})}
		before = lane[0].turn.mine
		wg.Go(func() {
			defer func() { <-slots }()
			b.workLane(lane)
		})
	}
	wg.Wait()
	b.forwardLast(ds)
	return ds
}

// lanes are the records that run one after the other.
func (s *source[R]) lanes(ds []delivery[R]) [][]*delivery[R] {
	all := make([][]*delivery[R], 0, len(ds))
	named := map[string]int{}
	for i := range ds {
		d := &ds[i]
		name, ordered := s.lane(d.out.Event)
		if !ordered {
			all = append(all, []*delivery[R]{d})
			continue
		}
		at, ok := named[name]
		if !ok {
			at = len(all)
			named[name], all = at, append(all, nil)
		}
		all[at] = append(all[at], d)
	}
	return all
}

// untilGuard ends the event's context at its guard. The engine counts a guard from
// each call's own begin, which gets shorter as the invocation's time runs out; the
// event must be answered as a whole, so its guard is fixed when it begins.
func untilGuard(ctx context.Context) (context.Context, context.CancelFunc) {
	kill, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	guard := guardOf(time.Until(kill))
	return context.WithDeadlineCause(idem.WithKillTime(ctx, kill), kill.Add(-guard), idem.ErrOutOfTime)
}

// guardOf is how long before its kill time an invocation of the length ends its
// handlers.
func guardOf(whole time.Duration) time.Duration { return min(idem.DefaultGuard, max(whole, 0)/4) }

// workLane settles records one after the other, each on a goroutine of its own:
// what ends that goroutine ends nothing else. The rest of a lane stays behind the
// first that is redelivered.
func (b *batch[R]) workLane(lane []*delivery[R]) {
	var stop *delivery[R]
	for _, d := range lane {
		alone(func() {
			defer func() {
				if !b.forwardsLast(d) {
					b.tell(d)
				}
			}()
			// However it ends, also without a key.
			defer d.turn.pass()
			if stop == nil {
				b.settle(d)
				return
			}
			d.out.Reason, d.out.Err, d.out.LeaseUntil = ReasonBehind, errBehind, stop.out.LeaseUntil
		})
		if stop == nil && !d.out.Reason.Acknowledges() {
			stop = d
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

func (b *batch[R]) settle(d *delivery[R]) {
	b.run(d)
	if d.out.Reason == ReasonFailed && b.opts.OnFailed != nil && b.redeliverFrom == nil {
		b.forward(d)
	}
}

// run gives a record its outcome, however the handler, the key function or the
// decoder ends.
func (b *batch[R]) run(d *delivery[R]) {
	defer d.ended()
	work, err := b.open(d.out.Event)
	if err != nil {
		d.out.Reason, d.out.Err = ReasonBodyUnreadable, err
		return
	}
	tenant, value, err := b.key(d.ctx, d.out.Event)
	key := b.op.Key(tenant, value)
	if err == nil {
		err = key.Err()
	}
	if err != nil {
		d.out.Reason, d.out.Err = ReasonKeyInvalid, err
		return
	}
	d.out.RecordID = key.ID()
	d.turn.wait()
	t, before, first := b.twin(identity{key.ID(), work.fingerprint})
	d.turn.pass()
	if !first {
		<-t.done
		d.share(t.out)
		return
	}
	defer func() {
		t.out = d.out
		close(t.done)
	}()
	defer d.ended()
	if before != nil {
		<-before.done
	}
	b.execute(d, key, work)
}

func (b *batch[R]) execute(d *delivery[R], key idem.Key, w job) {
	out, err := b.engine.Execute(d.ctx, idem.Call{Key: key, Fingerprint: w.fingerprint, Run: func(ctx context.Context) idem.Answer {
		return idem.Answer{Err: w.run(ctx)}
	}})
	d.out.Err, d.out.State, d.out.Attempt, d.out.Failure = err, out.State, out.Attempt, out.Failure
	if out.Executed {
		d.out.Reason = reasonOfOwn(out)
		if err == nil && d.out.Reason != ReasonExecuted {
			d.out.Err = errNotCompleted
		}
		return
	}
	d.out.Reason = reasonOfAnswer(err)
	switch d.out.Reason {
	case ReasonUnknown:
		d.out.State = idem.Unknown
	case ReasonAccepted:
		d.out.State = idem.Pending
	case ReasonInFlight:
		d.out.State = idem.InProgress
	}
	var rival *idem.InFlightError
	if errors.As(err, &rival) && rival.Attempt > 0 {
		d.out.Attempt, d.out.LeaseUntil = rival.Attempt, time.Now().Add(rival.LeaseLeft)
	}
}

var (
	errNotCompleted = errors.New("idemlambda: the handler returned no error, and its success is not the outcome")
	errGoexit       = errors.New("idemlambda: the function ended its goroutine, with runtime.Goexit")
	errBehind       = errors.New("idemlambda: an earlier one is redelivered, and their order matters")
)
