package idem

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Defaults of [Options].
const (
	// DefaultLease is how long a claim is respected where no kill time is known,
	// unless it is renewed. A crashed process blocks its key for this and the margin.
	DefaultLease = 30 * time.Second
	// DefaultMargin is what observers add to a lease for clocks that differ.
	DefaultMargin = 2 * time.Second
	// DefaultGuard is how long before the kill time the handler's context ends.
	DefaultGuard = time.Second
	// DefaultClaimBudget bounds what a call spends on the store before its claim.
	DefaultClaimBudget = time.Second
	// DefaultFinishBudget bounds what a call spends on recording a small outcome.
	DefaultFinishBudget = 2 * time.Second
)

// Options of an engine. Nil and zero fields mean the defaults.
type Options struct {
	// Lease is how long a claim is respected where no kill time is known; it is renewed
	// at a third of it while the handler runs. Zero means [DefaultLease]. Too short, and a
	// paused process loses its claim; too long, and a crash blocks its key.
	Lease time.Duration
	// Margin is the clock skew that observers allow for before they take a lease as over, or
	// an outcome as expired. Zero means [DefaultMargin]. Too short, and an attempt with a
	// slow clock is taken over while it runs; the promise is then kept by fencing alone.
	Margin time.Duration
	// Guard is how long before the kill time the handler's context ends, so that the outcome can
	// still be written; a quarter of the time left if that is less. Zero means [DefaultGuard].
	Guard time.Duration
	// ClaimBudget bounds the store calls before the handler runs, a quarter of the time left if
	// that is less. When it is used up the call fails closed. Zero means [DefaultClaimBudget].
	ClaimBudget time.Duration
	// FinishBudget bounds the store calls after the handler ran; results and units of
	// work get a second more for each MiB, and nothing outlasts the kill time. An outcome
	// that could not be written by then is queued, and so is a result that could not be
	// stored beside its record. Zero means [DefaultFinishBudget].
	FinishBudget time.Duration
	// StoreFailures is how many calls in a row must find the store down, and not throttled, until
	// calls fail closed at once. One a second asks then, and the first answer ends that. What has
	// run is still written, and operations that fail open ask. Zero means 5, negative never.
	StoreFailures int
	// Wait is how long a call waits for one in flight before it answers [ErrInFlight]. Zero: not at all.
	Wait time.Duration
	// QueueBytes bounds what is kept in memory of outcomes to be written later, in bytes.
	// Zero means 32 MiB. Where it is full, results are dropped first, then what takes back
	// claims under which nothing ran, then outcomes; the observer is told of each.
	QueueBytes int
	// Observer is told what happens. Nil means warnings, errors and shadow of [LogTo] to slog.Default.
	Observer Observer
	// Now is the clock that records go by, for tests. Deadlines of contexts and kill
	// times go by time.Now, always. Nil means time.Now.
	Now func() time.Time
}

// Engine runs operations. It holds its store, its options and the outcomes that could
// not be written yet. It is safe for concurrent use: make one per process.
type Engine struct {
	store      Store
	opts       Options
	now        func() time.Time
	inLambda   bool
	unrecorded bool // the store keeps nothing
	managed    bool // on Managed Instances, where nothing is killed when the invocation's time is over
	queue      *queue
	circuit    circuit
	holdings   holdings
	fences     fences
	// stepExtra is by how many bytes more than usual the store's steps count.
	stepExtra int
	checks    sync.Map // *secretCheck by the fingerprint of the check record
}

// New returns an engine over the store. Mistakes in its arguments are a [*ConfigError].
func New(store Store, o *Options) (*Engine, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &ConfigError{What: "engine", Problem: "the store is nil: make one with dynamostore.New or memstore.New"}
	}
	e := &Engine{store: store, inLambda: os.Getenv("AWS_LAMBDA_RUNTIME_API") != "", managed: managedInstance()}
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
		{"ClaimBudget", &e.opts.ClaimBudget, DefaultClaimBudget},
		{"FinishBudget", &e.opts.FinishBudget, DefaultFinishBudget},
		{"Wait", &e.opts.Wait, 0},
	} {
		if *d.value < 0 {
			return nil, &ConfigError{What: "engine", Problem: fmt.Sprintf("%s is %v: it cannot be negative", d.name, *d.value)}
		}
		if *d.value > 0 && *d.value < time.Millisecond {
			return nil, &ConfigError{What: "engine", Problem: fmt.Sprintf("%s is %v: use at least a millisecond, with its unit, such as 2*time.Second", d.name, *d.value)}
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if e.opts.QueueBytes < 0 {
		return nil, &ConfigError{What: "engine", Problem: fmt.Sprintf("QueueBytes is %d: it cannot be negative", e.opts.QueueBytes)}
	}
	if e.opts.QueueBytes == 0 {
		e.opts.QueueBytes = 32 << 20
	}
	if e.circuit.least = int32(min(max(e.opts.StoreFailures, 0), math.MaxInt32)); e.opts.StoreFailures == 0 {
		e.circuit.least = defaultStoreFailures
	}
	e.circuit.memory = max(circuitMemory, 2*e.opts.ClaimBudget)
	e.opts.Observer = Observers(e.opts.Observer)
	clock := e.opts.Now
	if clock == nil {
		clock = time.Now
	}
	// Records keep milliseconds: the live outcome shows the same times as a replay.
	e.now = func() time.Time { return clock().UTC().Truncate(time.Millisecond) }
	if s, ok := store.(protocol.StepSizer); ok {
		e.stepExtra = s.StepExtra()
	}
	e.queue = &queue{engine: e, blocked: map[string]int{}, idle: make(chan struct{}, 1)}
	return e, nil
}

// Now returns the time by the engine's clock, to the millisecond. Compare a record's
// times with it.
func (e *Engine) Now() time.Time { return e.now() }

// Store returns the store that the engine was made with.
func (e *Engine) Store() Store { return e.store }

// newID returns a random identifier of 128 bits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// startOfID is how much of an attempt's owner its write ids start with: 66 bits. They
// are compared with the few others of the same record alone.
const startOfID = 11

// maxRounds bounds how often a call follows a record that changes under it;
// each round is a lost race, so somebody else makes progress.
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
