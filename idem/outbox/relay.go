package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
)

// Defaults of a relay.
const (
	// DefaultMaxTries with sweeps every 5 minutes takes at least 45 minutes.
	DefaultMaxTries = 10
	// pollTries with tries up to DefaultMaxBackoff after each other take as long.
	pollTries = 30
	// DefaultBackoff is the first pause, DefaultMaxBackoff the longest.
	DefaultBackoff    = time.Second
	DefaultMaxBackoff = 2 * time.Minute
	// DefaultGrace is the stream's time before the sweep: it usually takes less than a
	// second.
	DefaultGrace = 2 * time.Minute
	// DefaultPatience is long for a request to a service that works, and short for the
	// destinations that wait.
	DefaultPatience = 2 * time.Second

	// keep is how long a dispatched message can be looked at.
	keep = 24 * time.Hour
	// sendTimeout bounds one call of a sender: it covers a request and a repetition.
	sendTimeout = 10 * time.Second
	// margin is how long before the context's deadline the relay stops sending, to note the results of
	// what was sent. It is at most a quarter of the time until the deadline.
	margin = 2 * time.Second
	// memory is how many bytes of messages a call of the relay reads ahead. The passes of a sweep
	// share it: Lambda ends a process that takes more memory than its function has.
	memory = 16 << 20
	// maxReason keeps items small, since thousands may be read.
	maxReason = 1 << 10
)

// Options of a relay. The zero value, and nil, mean the defaults.
type Options struct {
	// MaxTries is how many tries may fail until a message becomes a dead letter; only a
	// message that was sent counts as tried. A message that its destination rejects becomes
	// a dead letter at once. Zero means [DefaultMaxTries], and 30 in [Relay.Poll].
	MaxTries int
	// Backoff is the pause after the first failed try; it doubles up to MaxBackoff.
	// Zero means [DefaultBackoff] and [DefaultMaxBackoff].
	Backoff, MaxBackoff time.Duration
	// Grace is the age from which [Relay.Sweep] sends a message that was not tried yet, and
	// from which even the first try is noted before it is made. It must be longer than the
	// stream usually takes, and longer than one invocation. Zero means [DefaultGrace].
	Grace time.Duration
	// Patience is how long a destination may keep the others waiting in
	// [Relay.Deliver], in one call of its sender and in a minute. After that its messages
	// are left to the sweep for a minute. Zero means [DefaultPatience].
	Patience time.Duration
}

// Relay sends stored messages. It is safe for concurrent use, even by several processes on
// one store.
type Relay struct {
	store   Store
	senders map[string]Sender
	opts    Options

	mu     sync.Mutex
	cost   map[string]*cost // by destination
	passes map[string]*pass // where the last sweep has stopped, by destination

	reading chan struct{} // of sweeps, see readers
}

// NewRelay returns a relay that sends the messages of a destination with the sender of that
// name. A message for a destination without a sender is treated as if the destination were
// down, and becomes a dead letter in the end; [Relay.Poll] leaves it. Mistakes are errors that say what to do.
func NewRelay(store Store, senders map[string]Sender, o *Options) (*Relay, error) {
	r := &Relay{store: store, senders: maps.Clone(senders), cost: map[string]*cost{}, passes: map[string]*pass{},
		reading: make(chan struct{}, readers)}
	if o != nil {
		r.opts = *o
	}
	if store == nil {
		return nil, errors.New("outbox: NewRelay: the store is nil: make one with dynamostore.NewOutbox, or take that of " +
			"a pgstore.Store")
	}
	if len(senders) == 0 {
		return nil, errors.New("outbox: NewRelay: no senders: name at least one destination")
	}
	for _, name := range slices.Sorted(maps.Keys(senders)) {
		if senders[name] == nil {
			return nil, fmt.Errorf("outbox: NewRelay: the sender for %q is nil", name)
		}
		if name == "" || len(name) > MaxDestination || !isName(name) {
			return nil, fmt.Errorf("outbox: NewRelay: destination %q: use up to %d letters, digits, '.', '_' and '-'",
				name, MaxDestination)
		}
	}
	if r.opts.MaxTries < 0 {
		return nil, fmt.Errorf("outbox: Options.MaxTries is %d: it cannot be negative", r.opts.MaxTries)
	}
	for _, f := range []struct {
		name string
		d    *time.Duration
		def  time.Duration
	}{
		{"Backoff", &r.opts.Backoff, DefaultBackoff}, {"MaxBackoff", &r.opts.MaxBackoff, DefaultMaxBackoff},
		{"Grace", &r.opts.Grace, DefaultGrace}, {"Patience", &r.opts.Patience, DefaultPatience},
	} {
		if *f.d < 0 {
			return nil, fmt.Errorf("outbox: Options.%s is %v: it cannot be negative", f.name, *f.d)
		}
		*f.d = cmp.Or(*f.d, f.def)
	}
	if r.opts.MaxBackoff < r.opts.Backoff {
		return nil, fmt.Errorf("outbox: Options.MaxBackoff is %v and less than Backoff, %v",
			r.opts.MaxBackoff, r.opts.Backoff)
	}
	return r, nil
}

// pause is the time after the n-th failed try.
func (r *Relay) pause(n int) time.Duration {
	d := r.opts.Backoff
	for range n - 1 {
		if d >= r.opts.MaxBackoff/2 {
			return r.opts.MaxBackoff
		}
		d *= 2
	}
	return d
}

// Report counts what a call of a relay did.
type Report struct {
	// Sent messages were accepted by their destination and noted as sent.
	Sent int `json:"sent"`
	// Failed counts tries that failed and will be repeated, Dead those messages
	// that became dead letters.
	Failed int `json:"failed"`
	Dead   int `json:"dead"`
	// Skipped messages were sent or given up before, or are not due yet.
	Skipped int `json:"skipped"`
	// Deferred messages are left to a later sweep without a try, because their
	// destination, or one before them, has just failed or takes too long.
	Deferred int `json:"deferred"`
	// Unreadable messages are left as they are: an operator must look at them.
	Unreadable int `json:"unreadable"`
	// Left messages were not finished in this call: time ran out, or the store failed.
	Left int `json:"left"`
	// Missed messages were sent by a sweep, older than [Options.Grace], and had not been tried
	// before: the stream did not deliver them in time, or left them because their destination was
	// down or slow. If destinations work and sweeps find such messages again and again, the stream's
	// deliveries have stopped. A message counts if its destination accepts it at its first try, and not later.
	Missed int `json:"missed,omitempty"`
	// OldestAt is when the oldest message was committed that a sweep found waiting, whether it
	// has sent it or not. Zero if it found none, and of a delivery. Where a destination is
	// down, a sweep finds only some of what waits for it. In Postgres it finds a message without
	// an ordering key when its next try is due.
	OldestAt time.Time `json:"oldest_at,omitzero"`
	// More says that a sweep had no time to look at all that waits, or could not read it: what
	// it found is some of it, and nothing found is not nothing that waits.
	More bool `json:"more,omitempty"`
	// Problems says what went wrong, once each, at most 20.
	Problems []string `json:"problems,omitempty"`
}

func (r *Report) problem(format string, args ...any) {
	p := fmt.Sprintf(format, args...)
	if len(r.Problems) < 20 && !slices.Contains(r.Problems, p) {
		r.Problems = append(r.Problems, p)
	}
}

// Counts has the counts as metrics, by the names of package schema.
func (r Report) Counts() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		_ = yield(schema.MetricOutboxRelayed, r.Sent) && yield(schema.MetricOutboxFailed, r.Failed) &&
			yield(schema.MetricOutboxDead, r.Dead) && yield(schema.MetricOutboxDeferred, r.Deferred) &&
			yield(schema.MetricOutboxUnreadable, r.Unreadable) && yield(schema.MetricOutboxLeft, r.Left)
	}
}
