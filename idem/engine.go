package idem

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/internal/guard"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Defaults of [Options].
const (
	DefaultLease        = 30 * time.Second
	DefaultMargin       = 2 * time.Second
	DefaultGuard        = time.Second
	defaultClaimBudget  = time.Second
	defaultFinishBudget = 2 * time.Second
)

// Options of an engine. Nil and zero fields mean the defaults.
type Options struct {
	// Lease is how long a claim is respected where no kill time is known; it is renewed at a third
	// of it while the handler runs. Zero means [DefaultLease]. A crash blocks its key for that long.
	Lease time.Duration
	// Margin is the clock skew that others allow for before they take a lease as over, or an
	// outcome as expired. Zero means [DefaultMargin]. An attempt whose clock is slower than that is
	// taken over while it runs; the promise is then kept by fencing alone.
	Margin time.Duration
	// Guard is how long before the kill time the handler's context ends, so that the outcome can
	// still be written; a quarter of the time left if that is less. Zero means [DefaultGuard].
	Guard time.Duration
	// ClaimBudget bounds the store calls before the handler runs, a quarter of the time left if
	// that is less. When it is used up the call fails closed. Zero means a second.
	ClaimBudget time.Duration
	// FinishBudget bounds the store calls after the handler ran; results and units of work get a second more for each
	// MiB, and nothing outlasts the kill time. What could not be written by then is queued. Zero means two seconds.
	FinishBudget time.Duration
	// Wait is how long a call waits for one in flight before it answers [ErrInFlight]. Zero: not at all.
	Wait time.Duration
	// Observer gets a notice of what happens. Nil means what [LogTo] logs as warnings and errors, and of shadow.
	Observer Observer
	// Pauses are those of package pause. Nil: nothing can be paused.
	Pauses protocol.Pauser
	// Now is the clock of records, for tests; nil means time.Now. Deadlines and kill times use
	// time.Now. An engine with it asks a store that is down in each call.
	Now func() time.Time
}

// Engine runs operations. It holds the outcomes that could not be written yet. It is safe for
// concurrent use: make one per process.
type Engine struct {
	given      Store // by the caller of New
	store      Store // with the guards around it
	opts       Options
	now        func() time.Time
	inLambda   bool
	unrecorded bool // the store keeps nothing
	managed    bool // on Managed Instances, where nothing is killed when the invocation's time is over
	pending    *guard.Pending
	traits     protocol.Traits // of the store
	checks     sync.Map        // *secretCheck by the fingerprint of the check record
}

// New returns an engine over the store. Mistakes are a [*ConfigError].
func New(store Store, o *Options) (*Engine, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, configError("engine", "the store is nil: make one with dynamostore.New or memstore.New")
	}
	e := &Engine{given: store, inLambda: os.Getenv("AWS_LAMBDA_RUNTIME_API") != "", managed: managedInstance()}
	if o != nil {
		e.opts = *o
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Lease", &e.opts.Lease, DefaultLease},
		{"Margin", &e.opts.Margin, DefaultMargin},
		{"Guard", &e.opts.Guard, DefaultGuard},
		{"ClaimBudget", &e.opts.ClaimBudget, defaultClaimBudget},
		{"FinishBudget", &e.opts.FinishBudget, defaultFinishBudget},
		{"Wait", &e.opts.Wait, 0},
	} {
		if *d.value < 0 {
			return nil, configError("engine", "%s is %v: it cannot be negative", d.name, *d.value)
		}
		if *d.value > 0 && *d.value < time.Millisecond {
			return nil, configError("engine", "%s is %v: use at least a millisecond, with its unit, such as 2*time.Second",
				d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	e.opts.Observer = Observers(e.opts.Observer)
	clock := e.opts.Now
	if clock == nil {
		clock = time.Now
	}
	// Records keep milliseconds: the live outcome shows the same times as a replay.
	e.now = func() time.Time { return clock().UTC().Truncate(time.Millisecond) }
	e.traits = store.Traits()
	e.store = e.guarded(store)
	return e, nil
}

// guarded puts the guards around the store. The order is the decision: see DESIGN.md.
func (e *Engine) guarded(s Store) Store {
	if e.opts.Now == nil { // the circuit uses the clock of the process
		s = guard.Circuit(s, e.report)
	}
	s = guard.Holding(guard.Withdrawals(guard.Hot(s), e.opts.Margin))
	e.pending = guard.NewPending(s, e.now, e.opts.FinishBudget, e.report)
	return e.pending
}

// Check returns why calls cannot execute the operation over the store, or be accepted for later; nil if they can.
func (e *Engine) Check(op Operation, later bool) error {
	if err := op.Check(); err != nil || op.Shadow && !later {
		return err
	}
	if err := e.traits.Refuses(op.Mode == Atomic, op.Repeat, later); err != nil {
		return fmt.Errorf("operation %q: %w", op.Name, err)
	}
	return nil
}

// Now returns the engine's time, with which a record's times are compared.
func (e *Engine) Now() time.Time { return e.now() }

// Store returns the store that the engine was made with.
func (e *Engine) Store() Store { return e.given }

// expiry is when an outcome that is sent now ends: never before its own write has landed.
func (e *Engine) expiry(now time.Time, retention time.Duration, size int) time.Time {
	return guard.Expiry(now, retention, e.opts.FinishBudget, size)
}

// startOfID is how much of its attempt's owner a write id starts with: 65 bits, compared within one record alone.
const startOfID = 11

// maxRounds bounds how often a write of an attempt follows a record that changes under it; each
// round is a lost race, so another writer makes progress.
const maxRounds = 8

// managedInstance reports whether the process is a Lambda Managed Instance. Such a one may
// be limited to one invocation at a time; several tell it for certain.
func managedInstance() bool {
	n, err := strconv.Atoi(os.Getenv("AWS_LAMBDA_MAX_CONCURRENCY"))
	return os.Getenv("AWS_LAMBDA_INITIALIZATION_TYPE") == "lambda-managed-instances" || err == nil && n > 1
}

// tell calls the observer.
func (e *Engine) tell(ctx context.Context, kind notice.Kind, n notice.Notice) {
	n.Kind = kind
	e.opts.Observer.tell(ctx, n)
}

// report tells the observer what a guard has done about a record.
func (e *Engine) report(ctx context.Context, kind notice.Kind, id string, n notice.Notice) {
	n.ID = id
	if n.Tenant, n.Operation, _ = protocol.ParseRecordID(id); n.Tenant == "" {
		n.Tenant = SingleTenant
	}
	e.tell(ctx, kind, n)
}

// Flush writes the outcomes that could not be written yet. Call it before a process outside
// Lambda ends. It returns nil when nothing waits any more, else the store's error.
func (e *Engine) Flush(ctx context.Context) error { return e.pending.Flush(ctx) }
