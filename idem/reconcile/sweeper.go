package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/idem-go/idempotency/idem"
)

// Defaults of a sweep.
const (
	// DefaultConcurrency is how many records of a provider are handled at once.
	DefaultConcurrency = 8
	// DefaultProbeTimeout covers a request to a provider and a repetition.
	DefaultProbeTimeout = 10 * time.Second
	// DefaultEscalateAfter is the age at which a question is escalated about which no
	// provider can be asked.
	DefaultEscalateAfter = 15 * time.Minute
	// DefaultProbeAge is that age where there is a probe: longer than most outages of
	// providers, and within the day in which clients commonly retry.
	DefaultProbeAge = 4 * time.Hour

	// openAfter is the number of probes in a row without an answer after which a provider's
	// circuit opens. openFor is the time until one probe tries again.
	openAfter = 5
	openFor   = time.Minute

	// pageSize is how many records of a shard are listed at a time; shards take turns.
	pageSize = 250
	// reserve is how long before its deadline a sweep stops, for the last writes. It is at most a
	// quarter of the sweep's time.
	reserve = 3 * time.Second
	// firstBackoff is the pause after the first probe without an answer. It doubles with each
	// further one, up to maxBackoff. A random part of up to half is taken off.
	firstBackoff = time.Minute
	maxBackoff   = time.Hour
)

// Operation is what a sweep knows about an operation. If it does not know an operation, it
// parks lapsed claims as their records declare, and the questions are escalated.
type Operation struct {
	// Operation is the declaration that its handlers run under. Name, Repeat and
	// MaxAttempts count. Required.
	Operation idem.Operation
	// Probe asks the provider what became of an Unknown operation. After an error, a panic
	// or a time-out the operation stays unknown. Its context ends after
	// [SweepOptions.ProbeTimeout]; the sweep does not wait for a probe that ignores that. It
	// may be asked about a question more than once. Nil means that only operators can tell.
	Probe func(ctx context.Context, q Question) (Answer, error)
	// OnAbandoned gets work that the next call would continue, and for which no call has
	// come: a lapsed claim of a repeatable operation, or a Released one with steps. It may
	// send the work again; what was accepted for later waits for the message that brings a worker.
	// It is called at least once, and again after growing pauses until the work continues, and not from 5 seconds
	// after the operation was paused until that is over. It has the same time as Probe. Nil means that the
	// work is reported and, after [Operation.EscalateAfter], escalated. About a claim with an interrupted step Probe
	// is asked then. It stays claimable: the next call may close the step ([idem.StepConfig]).
	OnAbandoned func(ctx context.Context, q Question) error
	// Provider names what Probe asks. Operations with the same provider share workers, see
	// [SweepOptions.Concurrency], and a circuit: after five probes in a row without an
	// answer the provider is asked one question a minute until it answers. Empty means the
	// operation's name.
	Provider string
	// EscalateAfter is the age at which a question is escalated. Zero means
	// [DefaultEscalateAfter], and [DefaultProbeAge] with Probe, or for work that OnAbandoned
	// gets: no provider is asked about an Unknown operation without Probe. Probe is asked
	// once more before that. While the circuit is open, the question waits for it until it
	// is twice as old, and so it does if each call of Probe ends its process.
	EscalateAfter time.Duration
}

// SweepOptions of a sweeper. The zero value, and nil, mean the defaults.
type SweepOptions struct {
	// Operations that the sweep knows.
	Operations []Operation
	// Escalate gets each question that is escalated, at least once: again, with the same
	// [Escalation.Message], until it returns nil in time and that is recorded. [SendTo] makes
	// one from a sender. To link to a runbook of your own, set [Escalation.Help] before you send it.
	// Nil means that questions are only logged and noted in their records.
	Escalate func(ctx context.Context, g Escalation) error
	// IncludeErrorMessages gives operators the messages of errors, which may contain personal data.
	// Otherwise they get only the type and the code.
	IncludeErrorMessages bool
	// Who is the [Change.Actor] of the sweep's changes. Empty means "sweep".
	Who string
	// Concurrency is how many records of a provider are handled at once. The operations that
	// are not in Operations count together as one provider. A provider that answers slowly
	// therefore takes no time from the others. Zero means [DefaultConcurrency].
	Concurrency int
	// ProbeTimeout bounds a call of Probe, OnAbandoned and Escalate. In a sweep with a
	// deadline it is at most half of its time. Zero means [DefaultProbeTimeout].
	ProbeTimeout time.Duration
	// Expired, a *dynamostore.Remover or a *pgstore.Store, is for a table without TTL: it removes items that
	// expired more than a day ago. Each sweep that has time left looks at some 5,000 items of the
	// table, drawn at random, with at most some 100 requests for a small table. Of Postgres it
	// removes all that has expired. Nil leaves expired items to TTL.
	Expired Remover
	// DryRun writes nothing and asks no provider. It reports what a sweep would begin with.
	DryRun bool
	// Observer gets a notice of each [Action], by its Kind, in a dry run of none. Nil for none.
	Observer idem.Observer
	// Log gets one line for each [Action]. Nil means slog.Default.
	Log *slog.Logger
}

// Sweeper looks at what is due. It is safe for concurrent use, and so are several sweepers
// in several processes.
type Sweeper struct {
	r          *Reconciler
	opts       SweepOptions
	operations map[string]Operation
	circuits   map[string]*gobreaker.CircuitBreaker[Answer] // by provider
}

// NewSweeper returns a sweeper of the reconciler's store. It makes no call. Mistakes are an
// [*idem.ConfigError].
func NewSweeper(r *Reconciler, o *SweepOptions) (*Sweeper, error) {
	o = cmp.Or(o, &SweepOptions{})
	switch {
	case r == nil:
		return nil, invalid("sweep: reconciler", "is nil: make one with reconcile.New")
	case o.Concurrency < 0:
		return nil, invalid("sweep: SweepOptions.Concurrency", "is %d: it cannot be negative", o.Concurrency)
	case o.ProbeTimeout < 0:
		return nil, invalid("sweep: SweepOptions.ProbeTimeout", "is %v: it cannot be negative", o.ProbeTimeout)
	}
	s := &Sweeper{r: r, opts: *o, operations: map[string]Operation{},
		circuits: map[string]*gobreaker.CircuitBreaker[Answer]{}}
	s.opts.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	s.opts.ProbeTimeout = cmp.Or(o.ProbeTimeout, DefaultProbeTimeout)
	s.opts.Who = cmp.Or(o.Who, "sweep")
	for _, op := range s.opts.Operations {
		if err := op.Operation.Check(); err != nil {
			return nil, err
		}
		name := op.Operation.Name
		if _, twice := s.operations[name]; twice {
			return nil, invalid("sweep: SweepOptions.Operations", "has %q twice: name each operation once", name)
		}
		if op.EscalateAfter < 0 {
			return nil, invalid("sweep: operation "+name, "EscalateAfter is %v: it cannot be negative", op.EscalateAfter)
		}
		op.Provider = cmp.Or(op.Provider, name)
		if op.Probe != nil && s.circuits[op.Provider] == nil {
			s.circuits[op.Provider] = gobreaker.NewCircuitBreaker[Answer](gobreaker.Settings{
				Name: op.Provider, Timeout: openFor,
				ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= openAfter },
				IsExcluded:  func(err error) bool { return errors.Is(err, errUnasked) },
			})
		}
		s.operations[name] = op
	}
	return s, nil
}

// operation is what the sweeper knows of the record's operation: if it does not know it,
// what the record says.
func (s *Sweeper) operation(rec *idem.Record) Operation {
	_, name := namesOf(rec.ID)
	op, ok := s.operations[name]
	if !ok {
		op = Operation{Operation: idem.Operation{Name: name, Repeat: rec.Repeat}, Provider: name}
	}
	switch {
	case op.EscalateAfter != 0:
	case op.Probe != nil, op.OnAbandoned != nil && rec.State != idem.Unknown:
		op.EscalateAfter = DefaultProbeAge
	default:
		op.EscalateAfter = DefaultEscalateAfter
	}
	return op
}
