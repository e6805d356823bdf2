package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// alone are the options of a table without transactions.
var alone = Options{AttemptTimeout: patient.AttemptTimeout, Budget: patient.Budget, WithoutTransactions: true}

// transactionless stands before a table that has no transactions, as a global table with
// strong consistency: it answers TransactWriteItems and TransactGetItems with an error
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html,
// which names no code). None may be sent.
type transactionless struct {
	tb   testing.TB
	next http.RoundTripper
}

func (w transactionless) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), "."); strings.HasPrefix(op, "Transact") {
		w.tb.Errorf("%s was sent to a table without transactions", op)
		return answer(400, invalid), nil
	}
	return w.next.RoundTrip(req)
}

// change is a change from outside on its way, of the record as it was read.
type change struct {
	entry string
	send  func(context.Context, *Questions) error
	// made reports whether the item, nil for none, is what the change has made.
	made func(item) bool
	// forgets is the write that it removes, empty for another change.
	forgets string
}

// outside is one life of a record among those who change it from outside.
type outside struct {
	t  *testing.T
	f  *fixture
	q  *Questions
	r  *Remover
	id string
	n  int
	// made says of each entry whether its change was made.
	made map[string]bool
	// doubtful are entries of removals of which no reply came.
	doubtful map[string]bool
	// forgotten are the writes that were removed on request.
	forgotten map[string]bool
}

func (f *fixture) outside(t *testing.T, q *Questions, id string) *outside {
	return &outside{t: t, f: f, q: q, r: f.remover(t), id: id, made: map[string]bool{}, doubtful: map[string]bool{}, forgotten: map[string]bool{}}
}

func (o *outside) audit(rec *protocol.Record, c protocol.Change, to protocol.State) *protocol.Audit {
	o.n++
	a := &protocol.Audit{
		ID: o.id, Entry: fmt.Sprintf("entry-%02d", o.n), At: base.Add(time.Duration(o.n) * time.Second), Who: "alice", Why: "her right",
		Change: c, From: rec.State, To: to, Attempt: rec.Attempt, ExpiresAt: base.Add(1000 * time.Hour),
	}
	o.made[a.Entry] = false
	return a
}

// parks, givesUp, resolves and forgets make their change of the record as it is; nil if
// there is none to make.
func (o *outside) parks(rec *protocol.Record) *change {
	if rec == nil || rec.State != protocol.InProgress {
		return nil
	}
	a := o.audit(rec, protocol.ChangeParked, protocol.Unknown)
	return o.settles(a, protocol.Settlement{
		ID: o.id, Kind: protocol.EventLapse, Seen: rec.Write, Write: "w-" + a.Entry, Ending: protocol.Ending{State: protocol.Unknown}, Audit: a,
	})
}

func (o *outside) settles(a *protocol.Audit, w protocol.Settlement) *change {
	return &change{entry: a.Entry, send: func(ctx context.Context, q *Questions) error { return q.Settle(ctx, base, w) },
		made: func(it item) bool { return bears(it, w.Write) }}
}

func (o *outside) postpones(rec *protocol.Record) *change {
	if rec == nil || rec.Due.IsZero() {
		return nil
	}
	o.n++
	p := protocol.Postponement{ID: o.id, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: fmt.Sprint("s-", o.n), Due: base.Add(time.Hour)}
	return &change{send: func(ctx context.Context, q *Questions) error { return q.Postpone(ctx, base, p) },
		made: func(it item) bool { return text(it, schema.Sweep) == p.Sweep }}
}

func (o *outside) givesUp(rec *protocol.Record) *change {
	if rec == nil || rec.State != protocol.Unknown || !rec.GivenUpAt.IsZero() {
		return nil
	}
	a := o.audit(rec, protocol.ChangeGivenUp, protocol.Unknown)
	p := protocol.Postponement{
		ID: o.id, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: "s-" + a.Entry, Due: base.Add(time.Hour), GivenUpAt: base, Audit: a,
	}
	return &change{entry: a.Entry, send: func(ctx context.Context, q *Questions) error { return q.Postpone(ctx, base, p) },
		made: func(it item) bool { return text(it, schema.Sweep) == p.Sweep }}
}

func (o *outside) resolves(to protocol.State) func(*protocol.Record) *change {
	return func(rec *protocol.Record) *change {
		if rec == nil || rec.State != protocol.Unknown && !(rec.Resolved && rec.State != to) {
			return nil
		}
		a := o.audit(rec, protocol.ChangeResolved, to)
		w := resolution(o.id, rec.Write, "w-"+a.Entry, protocol.Ending{State: to, Result: []byte("{}"), ExpiresAt: base.Add(time.Hour)})
		if to != protocol.Completed {
			w.Ending.Result, w.Ending.Failure = nil, &protocol.Failure{Message: "no"}
		}
		w.Audit, w.Again = a, true
		return o.settles(a, w)
	}
}

func (o *outside) extends(rec *protocol.Record) *change {
	if rec == nil || !rec.Ended() || rec.ExpiresAt.After(base.Add(90*time.Minute)) {
		return nil
	}
	a := o.audit(rec, protocol.ChangeExtended, rec.State)
	p := protocol.Prolongation{ID: o.id, Seen: rec.Write, Write: "w-" + a.Entry, ExpiresAt: base.Add(100 * time.Minute), Audit: a}
	return &change{entry: a.Entry, send: func(ctx context.Context, q *Questions) error { return q.Prolong(ctx, base, p) },
		made: func(it item) bool { return bears(it, p.Write) }}
}

func (o *outside) forgets(rec *protocol.Record) *change {
	if rec == nil || rec.Open() || rec.State == protocol.InProgress {
		return nil
	}
	a := o.audit(rec, protocol.ChangeForgotten, protocol.Absent)
	return &change{entry: a.Entry, send: func(ctx context.Context, q *Questions) error {
		return q.Forget(ctx, base, protocol.Erasure{ID: o.id, Seen: rec.Write, Audit: a})
	}, made: func(it item) bool { return it == nil }, forgets: rec.Write}
}

// claims, replaces and removes are no changes from outside, and may lose none.
func (o *outside) claims(rec *protocol.Record) *change {
	if rec != nil && rec.State != protocol.Released {
		return nil
	}
	o.n++
	c := claim(o.id, fmt.Sprint("o-", o.n))
	if rec != nil {
		c.Seen = rec.Write
	}
	c.Record.Due, c.Record.ExpiresAt = base, time.Time{}
	return &change{send: func(ctx context.Context, q *Questions) error { return q.Acquire(ctx, base, c) },
		made: func(it item) bool { return bears(it, c.Record.Write) }}
}

func (o *outside) replaces(rec *protocol.Record) *change {
	if rec == nil || !rec.Expired(base.Add(2*time.Hour)) {
		return nil
	}
	o.n++
	c := claim(o.id, fmt.Sprint("o-", o.n))
	c.Seen, c.Replace, c.Record.Due, c.Record.ExpiresAt = rec.Write, true, base, time.Time{}
	return &change{send: func(ctx context.Context, q *Questions) error { return q.Acquire(ctx, base, c) },
		made: func(it item) bool { return bears(it, c.Record.Write) }}
}

func (o *outside) removes(rec *protocol.Record) *change {
	if rec == nil || !rec.Expired(base.Add(2*time.Hour)) {
		return nil
	}
	return &change{send: func(ctx context.Context, _ *Questions) error {
		for segment := range 3 {
			_, err := o.r.RemoveExpired(ctx, protocol.ExpiredQuery{Segment: segment, Segments: 3, Before: base.Add(2 * time.Hour)})
			if err != nil {
				return err
			}
		}
		return nil
	}, made: func(it item) bool { return it == nil }}
}

type maker = func(*protocol.Record) *change

// lives are the changes of a record, one after another.
func (o *outside) lives() map[string][]maker {
	completed, failed, released := o.resolves(protocol.Completed), o.resolves(protocol.Failed), o.resolves(protocol.Released)
	return map[string][]maker{
		"left to people, resolved, resolved again and forgotten": {o.claims, o.parks, o.postpones, o.givesUp, completed, failed, o.forgets},
		"released, claimed and parked again":                     {o.claims, o.parks, released, o.claims, o.parks, completed},
		"replaced when it has expired":                           {o.claims, o.parks, completed, o.replaces, o.parks, o.givesUp},
		"kept for longer":                                        {o.claims, o.parks, completed, o.extends, o.forgets},
		"kept for longer, and removed":                           {o.claims, o.parks, failed, o.extends, o.removes},
		"removed when it has expired":                            {o.claims, o.parks, failed, o.removes, o.claims, o.parks},
		"forgotten twice":                                        {o.claims, o.parks, completed, o.forgets, o.claims, o.parks, released, o.forgets},
	}
}

// item is the record as it is stored, nil for none.
func (o *outside) item() item {
	if it := o.f.raw(o.t, o.id); len(it) > 0 {
		return it
	}
	return nil
}

// read is the record as the next one sees it.
func (o *outside) read() *protocol.Record {
	it := o.item()
	if it == nil {
		return nil
	}
	rec, err := decode(it)
	require.NoError(o.t, err)
	return rec
}

// complete requires that each change that was made has its entry, and that no entry says of
// one that was not made that it was.
func (o *outside) complete(when string) {
	o.t.Helper()
	p, err := o.q.AuditOf(context.Background(), o.id, "")
	require.NoError(o.t, err)
	o.match(when, p.Entries)
}

func (o *outside) match(when string, entries []protocol.Audit) {
	o.t.Helper()
	found := map[string]bool{}
	for i, a := range entries {
		require.False(o.t, found[a.Entry], "%s: %s is there twice", when, a.Entry)
		found[a.Entry] = true
		require.True(o.t, i == 0 || !a.At.Before(entries[i-1].At), "%s: in order", when)
		require.True(o.t, o.made[a.Entry] || a.Unconfirmed, "%s: %s of %s says what was not done", when, a.Entry, a.Change)
		require.True(o.t, !a.Unconfirmed || o.doubtful[a.Entry], "%s: %s of %s is not confirmed", when, a.Entry, a.Change)
	}
	for entry, made := range o.made {
		require.True(o.t, found[entry] || !made, "%s: %s is missing", when, entry)
	}
}

// fault is what happens to the n-th request of a life.
type fault struct {
	name string
	// lost: of the request, or of the reply; dies: and the process with it.
	request, dies bool
	// same: the same write is sent again, instead of one made anew.
	same bool
}

var outsideFaults = []fault{
	{"dies before", true, true, false},
	{"dies before, and it is sent again", true, true, true},
	{"dies after", false, true, false},
	{"dies after, and it is sent again", false, true, true},
	{"its reply is lost", false, false, false},
}

// play plays a life in which something happens to the n-th request, and returns how many
// requests there were.
func (o *outside) play(life []maker, n int, how fault) int {
	o.t.Helper()
	sent := 0
	for _, make := range life {
		c := make(o.read())
		if c == nil {
			continue
		}
		died := false
		ctx, cancel := context.WithCancel(context.Background())
		o.f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
			sent++
			if died {
				return nil, errReset
			}
			if sent-1 != n {
				return nil, nil
			}
			if c.entry != "" {
				o.doubtful[c.entry] = true
			}
			if died = how.dies; died {
				defer cancel()
			}
			if how.request {
				return o.f.wire.loseRequest(req)
			}
			return o.f.wire.loseReply(req)
		})
		err := c.send(ctx, o.q)
		cancel()
		o.f.wire.set(nil)
		if !died {
			require.NoError(o.t, err)
		}
		when := fmt.Sprintf("request %d %s", n, how.name)
		if c.entry != "" {
			o.made[c.entry] = c.made(o.item())
		}
		o.complete(when)
		if !died {
			continue
		}
		if !how.same {
			if c = make(o.read()); c == nil {
				continue
			}
		}
		require.NoError(o.t, c.send(context.Background(), o.q), when)
		if c.entry != "" {
			o.made[c.entry] = o.made[c.entry] || c.made(o.item())
		}
		o.complete(when + ", and somebody went on")
	}
	return sent
}

// Whatever dies between two requests: no change from outside is without its audit entry, and
// no entry says what was not done.
func TestNoChangeIsWithoutItsEntryWithoutTransactions(t *testing.T) {
	t.Parallel()
	long := os.Getenv("IDEM_LONG") == "1" // else one fault a request
	for name := range (&outside{}).lives() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, &alone)
			q, next := f.questions(t), 0
			begin := func() (*outside, []maker) {
				next++
				o := f.outside(t, q, fmt.Sprint("t#op#", next))
				return o, o.lives()[name]
			}
			o, life := begin()
			all := o.play(life, -1, fault{})
			require.Empty(t, o.doubtful)
			for n := range all {
				for i, how := range outsideFaults {
					if i != n%len(outsideFaults) && !long {
						continue
					}
					o, life := begin()
					o.play(life, n, how)
					o.filed()
					f.remove(t, o.id) // scans are of what is there
				}
			}
			t.Logf("%d requests, %d lives", all, next)
		})
	}
}

// filed requires that no entry stays in the record once a remover has come by, and that then
// all are found by their time.
func (o *outside) filed() {
	o.t.Helper()
	for segment := range 3 {
		_, err := o.r.RemoveExpired(context.Background(), protocol.ExpiredQuery{Segment: segment, Segments: 3, Before: base.Add(-time.Hour)})
		require.NoError(o.t, err)
	}
	require.False(o.t, has(o.item(), schema.AuditEntry))
	o.complete("all is filed")
	var between []protocol.Audit
	for n := range protocol.Shards {
		if shardName(uint32(n)) != shard(o.id) {
			continue
		}
		for page := ""; ; {
			p, err := o.q.AuditBetween(context.Background(), n, base, base.Add(time.Hour), page)
			require.NoError(o.t, err)
			for _, a := range p.Entries {
				if a.ID == o.id {
					between = append(between, a)
				}
			}
			if page = p.Next; page == "" {
				break
			}
		}
	}
	o.match("by time", between)
}

// Two change the same record: between any two requests of the one, the other makes its whole
// change. Each is told what became of its own.
func TestTwoChangeARecordWithoutTransactions(t *testing.T) {
	t.Parallel()
	f := open(t, &alone)
	q := f.questions(t)
	plain, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: *f.admin.Options().BaseEndpoint})
	require.NoError(t, err)
	other, err := NewQuestions(plain, f.table, &alone)
	require.NoError(t, err)
	next, every := 0, 3
	if os.Getenv("IDEM_LONG") == "1" {
		every = 1
	}
	for name := range (&outside{}).lives() {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n += every {
				next++
				o := f.outside(t, q, fmt.Sprint("t#two#", next))
				sent := 0
				for _, make := range o.lives()[name] {
					c := make(o.read())
					if c == nil {
						continue
					}
					f.wire.set(func(int, string, *http.Request) (*http.Response, error) {
						if sent++; sent-1 == n {
							if b := make(o.read()); b != nil {
								o.decide(b, b.send(context.Background(), other))
							}
						}
						return nil, nil
					})
					o.decide(c, c.send(context.Background(), o.q))
					f.wire.set(nil)
					o.complete(fmt.Sprintf("somebody came before request %d", n))
				}
				if sent <= n {
					return
				}
			}
		})
	}
}

// decide notes whether the change was made, as who made it was told. Of two who forget the
// same, both are told that it is gone, and the one who did it is remembered.
func (o *outside) decide(c *change, err error) {
	if conflict := new(protocol.ConflictError); errors.As(err, &conflict) {
		return
	}
	require.NoError(o.t, err)
	if c.entry == "" {
		return
	}
	if c.forgets == "" {
		o.made[c.entry] = true
		return
	}
	o.forgotten[c.forgets] = true
	p, err := o.q.AuditOf(context.Background(), o.id, "")
	require.NoError(o.t, err)
	confirmed := 0
	for _, a := range p.Entries {
		if a.Change == protocol.ChangeForgotten && !a.Unconfirmed {
			confirmed++
			o.made[a.Entry] = true
		}
	}
	require.Equal(o.t, len(o.forgotten), confirmed)
}
