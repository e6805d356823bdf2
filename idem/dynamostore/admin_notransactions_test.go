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

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// noTransactions are the options of a table without transactions.
var noTransactions = Options{AttemptTimeout: patient.AttemptTimeout, Budget: patient.Budget, WithoutTransactions: true}

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

// fault is what happens to the n-th request of a life.
type fault struct {
	name string
	// lost: of the request, or of the reply; dies: and the process with it.
	request, dies bool
	// same: the same write is sent again, instead of a new one.
	same bool
}

var outsideFaults = []fault{
	{"dies before", true, true, false},
	{"dies before, and it is sent again", true, true, true},
	{"dies after", false, true, false},
	{"dies after, and it is sent again", false, true, true},
	{"its reply is lost", false, false, false},
}

// play plays a life in which something happens to the n-th request, and returns how many requests there were.
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
		if !died && c.forgets == "" {
			delete(o.doubtful, c.entry) // its reply came in the end
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
			if c.forgets == "" {
				delete(o.doubtful, c.entry) // it is confirmed now, by one of the two
			}
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
			f := open(t, &noTransactions)
			q, next := f.adminStore(t), 0
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
					o.byTime()
				}
			}
			t.Logf("%d requests, %d lives", all, next)
		})
	}
}

// byTime requires the same of the changes between two times.
func (o *outside) byTime() {
	o.t.Helper()
	var between []protocol.Audit
	for n := range protocol.AuditShards {
		if schema.AuditShard+shardName(uint32(n)) != text(encodeAudit(&protocol.Audit{ID: o.id}), schema.OpenShard) {
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
// change. Each learns what became of its own.
func TestTwoChangeARecordWithoutTransactions(t *testing.T) {
	t.Parallel()
	every := 3
	if os.Getenv("IDEM_LONG") == "1" {
		every = 1
	}
	for name := range (&outside{}).lives() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, next := open(t, &noTransactions), 0
			q := f.adminStore(t)
			other := must(NewAdminStore(f.admin, f.table, &noTransactions))
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

// decide notes whether the change was made, as its maker learned. If two forget the same
// record, both learn that it is deleted, and the one who did it is remembered.
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

// refusedPark is a change of a record that is refused, since another one came first.
func refusedPark(t *testing.T) (*outside, *change) {
	f := open(t, &noTransactions)
	o := f.outside(t, f.adminStore(t), "t#op#1")
	require.NoError(o.t, o.claims(o.read()).send(o.t.Context(), o.q))
	rec := o.read()
	first, second := o.parks(rec), o.parks(rec)
	require.NoError(o.t, first.send(o.t.Context(), o.q))
	o.made[first.entry] = true
	f.wire.set(nil)
	return o, second
}

func TestTheEntryOfARefusedChangeIsDeleted(t *testing.T) {
	o, c := refusedPark(t)
	require.ErrorAs(t, c.send(t.Context(), o.q), new(*protocol.ConflictError))
	require.Equal(t, []string{"PutItem", "UpdateItem", "DeleteItem"}, o.f.wire.calls())
	o.complete("refused")
	entries := changes(t, o.q, o.id)
	require.Len(t, entries, 1)
}

// A caller may not delete.
func TestTheEntryOfARefusedChangeStaysUnconfirmedWhereItCannotBeDeleted(t *testing.T) {
	o, c := refusedPark(t)
	o.f.wire.refuse("DeleteItem", noAccess)
	require.ErrorAs(t, c.send(t.Context(), o.q), new(*protocol.ConflictError))
	o.f.wire.set(nil)
	entries := changes(t, o.q, o.id)
	require.Len(t, entries, 2)
	for _, a := range entries {
		require.Equal(t, a.Entry == c.entry, a.Unconfirmed)
	}
}

// The deletion of the entry of a refused change comes after the same change was made.
func TestALateDeletionLeavesAConfirmedEntry(t *testing.T) {
	o, c := refusedPark(t)
	late := o.f.wire.hold(t, "DeleteItem", func() (*http.Response, error) { return answer(400, noAccess), nil })
	require.ErrorAs(t, c.send(t.Context(), o.q), new(*protocol.ConflictError))
	o.f.wire.set(nil)
	o.f.change(t, o.id, func(it item) {
		it[schema.Write], it[schema.State] = str("o-1.0"), str(string(protocol.InProgress))
	})
	require.NoError(t, c.send(t.Context(), o.q))
	o.made[c.entry] = true
	o.complete("made")
	late()
	o.complete("and the deletion came late")
}
