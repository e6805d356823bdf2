package idemlambda

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// RecordKeyFunc finds tenant and value of the key in a record of an event. It
// returns [idem.SingleTenant] as the tenant if there is none. It must not change or
// keep the record and must be safe for concurrent use. After an error the record
// is redelivered, and nothing is executed.
type RecordKeyFunc[R any] func(ctx context.Context, record *R) (tenant, value string, err error)

// Options of the handlers of an event source. Nil and zero fields mean the
// defaults. The functions run during the invocation: they should be quick, and
// must be safe for concurrent use. A panic in one is logged or reported, and affects
// no other record.
type Options[R any] struct {
	// Concurrency is the most records of an event that run concurrently, as far as the
	// source's order allows it. Zero means the source's default.
	Concurrency int

	// Select says which parts of the JSON bodies of two records with the same key are compared;
	// nil means all. It must be nil for handlers that take string, []byte or the
	// record itself.
	Select *fingerprint.Select

	// OnFailed gets a record whose permanent failure is recorded, before the record is
	// acknowledged. It can forward the record to a queue for operators, as
	// package sqsfailures does. After an error the record is redelivered and OnFailed
	// gets it again, so a record may be forwarded twice. A record that is redelivered
	// because of another one is forwarded only when it is acknowledged. Nil means that
	// such records are acknowledged without it: they are then only in the log, the operation's
	// record and the metric failed.
	OnFailed func(context.Context, Delivery[R]) error

	// OnOutcome gets the outcome of every record once, for metrics. Nil means no hook.
	OnOutcome func(context.Context, Delivery[R])

	// OnRedelivery gets all records of an event that are not acknowledged, in the
	// event's order, before the response is sent. It is not called if there are none. It
	// has 2 s, or half of the time left if that is less. Package sqsvisibility has a hook
	// for queues, which spares concurrent duplicates useless deliveries. Nil means no hook.
	OnRedelivery func(context.Context, []Delivery[R])

	// Logger gets a line for every record. Panics are errors. Recorded failures, and
	// records that are redelivered for a reason of their own, are warnings. Records that
	// only have to wait are at info level, the others at debug level. The attribute event
	// names the delivery, such as the message's id; record is the id of the operation's
	// record. Handlers' errors are logged, bodies and keys' values are not. Nil means
	// slog.Default.
	Logger *slog.Logger
}

// source delivers the records of an event of any service.
type source[R any] struct {
	what   string // the constructor, in errors
	noun   string // what a record is called, in logs
	engine *idem.Engine
	op     idem.Operation
	key    RecordKeyFunc[R]
	opts   Options[R]
	// open decodes a record and prepares its work.
	open func(*R) (job, error)
	// name names a record in logs.
	name func(*R) string
	// also is a further attribute in logs; nil for none.
	also func(*R) slog.Attr
	// lane names the records that run one after the other and stop at the first that
	// is redelivered; false means that the record has no order, and nil that none has.
	lane func(*R) (string, bool)
	// whole is set if the handler takes the body as it is, which counts as a whole.
	whole bool
	// window is how long the service may deliver a record again.
	window window
	// redeliverFrom returns the index from which on the service redelivers all records,
	// even those that are done. It is nil if the service redelivers single records.
	redeliverFrom func([]delivery[R]) int
}

// job is a record's body, ready to be worked on.
type job struct {
	fingerprint idem.Fingerprint
	run         func(context.Context) error
	// id and work are of a body that names a record of accepted work, which needs no key.
	id       string
	accepted bool
	work     func(context.Context) (idem.Outcome, error)
}

// check reports mistakes in the set-up.
func (s *source[R]) check(noHandler, text bool) error {
	key := ""
	if s.key == nil {
		key = "idemlambda.SQSAttribute(idem.SingleTenant, idemlambda.SQSKeyAttribute)"
	}
	switch err := checkHandler(s.what, s.engine, s.op, key, noHandler, s.opts.Select); {
	case err != nil:
		return err
	case s.opts.Concurrency < 0:
		return invalid(s.what, s.op, fmt.Sprintf("Concurrency is %d: use at least 1, or zero for the default",
			s.opts.Concurrency))
	case s.opts.Select != nil && text:
		return invalid(s.what, s.op,
			"Select is set, and the handler does not take JSON: take a type that JSON decodes into, such as json.RawMessage")
	}
	return s.window.check(s.what, s.op, s.logger())
}

// checkHandler reports the mistakes that all constructors may meet. Without a key function missingKey
// is an example of one.
func checkHandler(what string, engine *idem.Engine, op idem.Operation, missingKey string, noHandler bool,
	sel *fingerprint.Select) error {
	switch {
	case engine == nil:
		return invalid(what, op, "the engine is nil: make one with idem.New")
	case engine.Check(op, false) != nil:
		return engine.Check(op, false)
	case missingKey != "":
		return invalid(what, op, "the key function is nil: say where the key is, such as "+missingKey)
	case noHandler:
		return invalid(what, op, "the handler is nil")
	}
	return sel.Check()
}

func invalid(what string, op idem.Operation, problem string) error {
	return &idem.ConfigError{What: fmt.Sprintf("%s of operation %q", what, op.Name), Problem: problem}
}

func (s *source[R]) logger() *slog.Logger {
	return cmp.Or(s.opts.Logger, slog.Default())
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

// newSource makes the part that the constructors of all sources share. Mistakes in
// the set-up panic.
func newSource[R, In any](s source[R], body func(*R) ([]byte, error), fn func(context.Context, In) error) *source[R] {
	s.open = func(r *R) (job, error) {
		raw, err := body(r)
		if err != nil {
			return job{}, err
		}
		in, read, fp, err := openBody[In](raw, s.opts.Select, s.op.Shadow)
		if !read {
			return job{}, err
		}
		return job{fingerprint: fp, run: func(ctx context.Context) error { return fn(ctx, in) }}, err
	}
	return s.ready(fn == nil, isText[In]())
}

// newRawSource is for sources whose handlers take the record itself. The deliveries of
// one record differ in what the service adds, so only the key distinguishes records.
func newRawSource[R any](s source[R], fn func(context.Context, R) error) *source[R] {
	s.open = func(r *R) (job, error) {
		return job{fingerprint: fingerprint.Bytes(nil), run: func(ctx context.Context) error { return fn(ctx, *r) }}, nil
	}
	return s.ready(fn == nil, true)
}

// ready checks the set-up and fills in the defaults.
func (s source[R]) ready(noHandler, text bool) *source[R] {
	s.opts.Concurrency, s.whole = cmp.Or(s.opts.Concurrency, 1), text
	if err := s.check(noHandler, text); err != nil {
		panic(err)
	}
	return &s
}

func optionsOf[R any](o *Options[R]) Options[R] {
	if o == nil {
		return Options[R]{}
	}
	return *o
}

// keyOr is the source's own key function where the caller has none.
func keyOr[R any](key, own RecordKeyFunc[R]) RecordKeyFunc[R] {
	if key == nil {
		return own
	}
	return key
}

// withRetention gives an operation without a retention the source's.
func withRetention(op idem.Operation, d time.Duration) idem.Operation {
	op.Retention = cmp.Or(op.Retention, d)
	return op
}

// isText reports whether a handler takes a body as it is, JSON or not.
func isText[In any]() bool {
	switch any(*new(In)).(type) {
	case string, []byte:
		return true
	}
	return false
}

// openBody decodes a body into the handler's type and takes its fingerprint. In shadow a body
// without one is decoded too: whether it can be is read.
func openBody[In any](raw []byte, sel *fingerprint.Select, shadow bool) (in In, read bool,
	fp idem.Fingerprint, err error) {
	switch p := any(&in).(type) {
	case *string:
		*p = string(raw)
		return in, true, fingerprint.Bytes(raw), nil
	case *[]byte:
		*p = raw
		return in, true, fingerprint.Bytes(raw), nil
	}
	fp, err = fingerprint.JSON(raw, sel)
	if err != nil && !shadow {
		return in, false, "", err
	}
	if p, ok := any(&in).(*json.RawMessage); ok {
		*p = raw
		return in, true, fp, err
	}
	unread := json.Unmarshal(raw, &in)
	if err == nil {
		err = undecodable("body", unread)
	}
	return in, unread == nil, fp, err
}
