package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/outboxtest"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/outage"
	"github.com/idem-go/idempotency/idem/testenv/postgres"
)

// messages are those of an order, the earliest first.
func (s *shop) messages(record string) (all []*outbox.Entry) {
	s.t.Helper()
	list, next, err := s.store.Messages(s.t.Context(), record, "")
	require.NoError(s.t, err)
	require.Empty(s.t, next)
	all = make([]*outbox.Entry, len(list))
	for _, e := range list {
		found, _, err := s.store.Outbox().Load(s.t.Context(), []outbox.Ref{e.Ref()}, math.MaxInt)
		require.NoError(s.t, err)
		all[e.Number] = found[e.Ref()]
	}
	return all
}

// A message is there if and only if the outcome is, and is sent after that.
func TestAMessageCommitsWithItsOutcome(t *testing.T) {
	s := newShop(t, postgres.Shared(t).Database(t))
	down := errors.New("down")
	placed := outbox.Message{Destination: "orders", OrderingKey: "o-1", Type: "order.placed", ContentType: "text/plain",
		Body: []byte("one \x00 order"), Attributes: map[string]string{"region": "eu"}}
	for name, c := range map[string]struct {
		m    outbox.Message
		name string
		err  error
		want string // of the mistake
	}{
		"completed":    {placed, "placed", nil, ""},
		"not executed": {placed, "placed", idem.NotExecuted(down), ""},
		"no body":      {outbox.Message{Destination: "orders"}, "placed", nil, "Body is empty"},
		"no name":      {placed, "", nil, "the name is empty"},
		"twice":        {placed, "other", nil, `the name "other" is used twice`},
	} {
		for mode, op := range map[string]idem.Operation{"reserved": order, "atomic": atomicOrder} {
			t.Run(name+", "+mode, func(t *testing.T) {
				s := *s
				s.t = t
				s.handler = func(ctx context.Context, tx *pgstore.Tx, id string) (string, error) {
					other := outbox.Message{Destination: "prices", OrderingKey: "o-1", Body: []byte("{}")}
					require.NoError(t, tx.Publish("other", other))
					err := tx.Publish(c.name, c.m)
					if c.want != "" {
						require.ErrorContains(t, err, c.want) // and is ignored
					} else {
						require.NoError(t, tx.Publish("later", placed))
					}
					return id, c.err
				}
				id := t.Name()
				_, err := s.order(op, id)
				all := s.messages(op.Key("acme", id).ID())
				if c.err != nil || c.want != "" {
					require.Error(t, err)
					require.Empty(t, all)
					return
				}
				require.NoError(t, err)
				rec, err := s.store.Get(t.Context(), op.Key("acme", id).ID())
				require.NoError(t, err)
				named := func(name string) string { return outbox.MessageID(rec.ID, rec.CreatedAt, name) }
				require.Len(t, all, 3)
				require.Equal(t, []string{named("other"), named("placed"), named("later")},
					[]string{all[0].ID, all[1].ID, all[2].ID})
				require.Empty(t, all[1].After)
				require.Equal(t, []string{named("placed")}, all[2].After)
				require.Equal(t, rec.UpdatedAt, all[1].Created)
				got := all[1].Message
				require.NotEmpty(t, got.TenantGroup)
				got.ID, got.TenantGroup = "", ""
				require.Equal(t, placed, got)
				s.idle()
			})
		}
	}
}

func TestOutboxConformance(t *testing.T) { outboxConformance(t, "") }

// Behind PgBouncer in transaction mode no statement is prepared.
func TestOutboxConformanceWithoutPreparedStatements(t *testing.T) {
	outboxConformance(t, unprepared+"&default_transaction_isolation=repeatable%20read")
}

func outboxConformance(t *testing.T, settings string) {
	s, pool := openURL(t, postgres.Shared(t).Database(t)+settings)
	outboxtest.Run(t, func(t *testing.T) outboxtest.Harness {
		_, err := pool.Exec(t.Context(), "TRUNCATE idem_outbox, idem_changes")
		require.NoError(t, err)
		return outboxtest.Harness{
			Store: s.Outbox(), Operators: s,
			Put: func(t testing.TB, e *outbox.Entry) { require.NoError(t, pgstore.PutMessage(t.Context(), s, e)) },
			Remove: func(t testing.TB, ref outbox.Ref) {
				_, err := pool.Exec(t.Context(), "DELETE FROM idem_outbox WHERE record = $1 AND id = $2", ref.Record, ref.ID)
				require.NoError(t, err)
			},
		}
	})
}

var _ reconcile.OutboxStore = (*pgstore.Store)(nil)

// A note whose reply is lost is made again, and known again if it had landed. One of another relay is not taken for it.
func TestNotesWhoseRepliesAreLost(t *testing.T) {
	server := postgres.Shared(t)
	p := outage.NewProxy(t, server.Address())
	url := strings.Replace(server.Database(t), server.Address(), p.Addr().String(), 1)
	s, _ := openURL(t, url+unprepared) // each statement is sent with its text
	b, ctx := s.Outbox(), t.Context()
	base := time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	read := func(ref outbox.Ref) *outbox.Entry {
		found, _, err := b.Load(ctx, []outbox.Ref{ref}, math.MaxInt)
		require.NoError(t, err)
		require.NotNil(t, found[ref])
		return found[ref]
	}
	for _, fate := range []outage.Fate{outage.LoseReply, outage.LoseRequest} {
		m := outboxtest.Order("k")
		m.ID = outbox.MessageID(fmt.Sprint(fate), base, "placed")
		e := &outbox.Entry{Record: fmt.Sprint(fate), Message: m, State: outbox.New, Created: base}
		require.NoError(t, pgstore.PutMessage(ctx, s, e))
		noted := func(want bool, note func(e *outbox.Entry) (bool, error)) {
			t.Helper()
			e := read(e.Ref())
			var lost atomic.Bool
			p.OnRequest(func(sent string) outage.Fate {
				if strings.Contains(sent, "UPDATE idem_outbox") && lost.CompareAndSwap(false, true) {
					return fate
				}
				return outage.Pass
			})
			ok, err := note(e)
			require.NoError(t, err)
			require.Equal(t, want, ok)
			require.True(t, lost.Load())
		}
		begin := func(next time.Time) func(e *outbox.Entry) (bool, error) {
			return func(*outbox.Entry) (bool, error) { return b.Begin(ctx, e, 1, next) }
		}
		noted(true, begin(base))
		require.Equal(t, 1, read(e.Ref()).Tries)
		noted(false, begin(base.Add(time.Second)))
		noted(true, func(e *outbox.Entry) (bool, error) { return b.Retry(ctx, e, 1, base, "down") })
		noted(true, func(e *outbox.Entry) (bool, error) { return b.DeadLetter(ctx, base, e, 2, "down") })
		noted(false, func(*outbox.Entry) (bool, error) { return b.DeadLetter(ctx, base, e, 3, "down") })
		noted(true, func(e *outbox.Entry) (bool, error) {
			a := protocol.Audit{ID: e.Record, Entry: "one", At: base, Who: "ann", Change: protocol.ChangeRequeued}
			return true, s.Requeue(ctx, e, a)
		})
		history, err := s.AuditOf(ctx, e.Record, "")
		require.NoError(t, err)
		require.Len(t, history.Entries, 1)
		require.Equal(t, 1, read(e.Ref()).Resent)
		noted(true, func(e *outbox.Entry) (bool, error) { return b.Dispatch(ctx, base, e, "a", base) })
		e = read(e.Ref())
		require.Equal(t, "a", e.SentID)
		noted(false, func(e *outbox.Entry) (bool, error) { return b.Dispatch(ctx, base.Add(time.Second), e, "b", base) })
	}
}

// What the server does not do at all is an error.
func TestAnOutboxThatIsDown(t *testing.T) {
	server := postgres.Start(t)
	s, _ := openURL(t, server.URL())
	server.Kill()
	_, err := s.Outbox().Begin(t.Context(), &outbox.Entry{}, 1, time.Now())
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	_, _, err = s.Outbox().Waiting(t.Context(), 0, "orders", time.Now(), "")
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	require.NoError(t, server.Start())
	_, _, err = s.Outbox().Waiting(t.Context(), 0, "orders", time.Now(), "")
	require.NoError(t, err, "the connections of before are replaced")
}

// A message that is not due yet is not listed, and so not read, unless others wait for it.
func TestWhatIsNotDueIsNotListed(t *testing.T) {
	s, _ := openURL(t, postgres.Shared(t).Database(t))
	b, now := s.Outbox(), time.Now()
	var want []outbox.Ref
	for n, c := range []struct {
		key    string
		next   time.Duration
		listed bool
	}{{"", 0, true}, {"", -time.Minute, true}, {"", time.Hour, false}, {"k", time.Hour, true}, {"k", 0, true}} {
		e := &outbox.Entry{Record: "r", Message: outboxtest.Order(c.key), State: outbox.New, Number: n, Created: now}
		e.ID = outbox.MessageID("r", now, fmt.Sprint(n))
		require.NoError(t, pgstore.PutMessage(t.Context(), s, e))
		if c.next != 0 {
			ok, err := b.Retry(t.Context(), e, 1, now.Add(c.next), "down")
			require.True(t, ok && err == nil, "%v", err)
		}
		if c.listed {
			want = append(want, e.Ref())
		}
	}
	all, _, err := b.Waiting(t.Context(), 0, "orders", now, "")
	require.NoError(t, err)
	require.ElementsMatch(t, want, all)
	all, _, err = b.Strays(t.Context(), 0, nil, now, "")
	require.NoError(t, err)
	require.ElementsMatch(t, want, all)
	all, _, err = b.Waiting(t.Context(), 0, "orders", now.Add(time.Hour), "")
	require.NoError(t, err)
	require.Len(t, all, 5)
}

// A message of a later version, or a damaged one, is left as it is, and says so.
func TestUnreadableMessages(t *testing.T) {
	s, pool := openURL(t, postgres.Shared(t).Database(t))
	e := &outbox.Entry{Record: "r", Message: outboxtest.Order("k"), State: outbox.New, Created: time.Now()}
	e.ID = outbox.MessageID("r", e.Created, "placed")
	for _, damage := range []string{`head = '{"v":2}'`, `head = '{}'`, `head = '[]'`, `state = 'lost'`} {
		require.NoError(t, pgstore.PutMessage(t.Context(), s, e))
		_, err := pool.Exec(t.Context(), "UPDATE idem_outbox SET "+damage)
		require.NoError(t, err)
		found, _, err := s.Outbox().Load(t.Context(), []outbox.Ref{e.Ref()}, math.MaxInt)
		require.NoError(t, err)
		got := found[e.Ref()]
		require.ErrorIs(t, got.Unreadable, protocol.ErrRecordUnreadable)
		require.Equal(t, []string{"r", e.ID, "orders", "k"}, []string{got.Record, got.ID, got.Destination, got.OrderingKey})
		_, err = pool.Exec(t.Context(), "DELETE FROM idem_outbox")
		require.NoError(t, err)
	}
}

// A message is removed once it has expired, and never before it was sent.
func TestSentMessagesAreRemoved(t *testing.T) {
	s, _ := openURL(t, postgres.Shared(t).Database(t))
	now := time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	var refs []outbox.Ref
	for n := range 30 {
		e := &outbox.Entry{Record: "r", Message: outboxtest.Order(""), State: outbox.New, Number: n, Created: now}
		e.ID = outbox.MessageID("r", now, fmt.Sprint(n))
		require.NoError(t, pgstore.PutMessage(t.Context(), s, e))
		if n >= 10 {
			ok, err := s.Outbox().Dispatch(t.Context(), now, e, "", now.Add(time.Duration(n)*time.Hour))
			require.True(t, ok && err == nil, "%v", err)
		}
		refs = append(refs, e.Ref())
	}
	q := protocol.ExpiredQuery{Segments: 1, Before: now.Add(20*time.Hour - time.Second), Limit: 6}
	var removed []int
	for {
		p, err := s.RemoveExpired(t.Context(), q)
		require.NoError(t, err)
		removed = append(removed, p.Removed)
		if p.Done {
			break
		}
	}
	require.Equal(t, []int{6, 4}, removed)
	found, _, err := s.Outbox().Load(t.Context(), refs, math.MaxInt)
	require.NoError(t, err)
	for n, ref := range refs {
		require.Equal(t, n < 10 || n >= 20, found[ref] != nil, "%d", n)
	}
}

// What has expired is removed with its parts, and nothing else.
func TestExpiredRowsAreRemoved(t *testing.T) {
	s, pool := openURL(t, postgres.Shared(t).Database(t))
	now := time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	for n := range 6 { // the last one is an open question
		id, end := fmt.Sprint("acme#op#", n), now.Add(time.Duration(n+1)*time.Hour)
		c := protocol.Claim{Record: protocol.Record{ID: id, State: idem.InProgress, Owner: "a", Write: "a", Attempt: 1,
			LeaseUntil: now, CreatedAt: now, UpdatedAt: now}}
		require.NoError(t, s.Acquire(t.Context(), now, c))
		ending := protocol.Ending{State: idem.Completed, Result: make([]byte, 10<<10), ExpiresAt: now.Add(time.Minute)}
		if n == 5 {
			ending = protocol.Ending{State: idem.Unknown}
		}
		require.NoError(t, s.Finish(t.Context(), now, protocol.Finish{ID: id, Owner: "a", Write: "a.1", Ending: ending}))
		if n < 5 {
			require.NoError(t, s.Prolong(t.Context(), now, protocol.Prolongation{ID: id, Seen: "a.1", Write: "a.2",
				ExpiresAt: end, Audit: &protocol.Audit{ID: id, Entry: "one", At: now, ExpiresAt: end}}))
		}
	}
	p, err := s.RemoveExpired(t.Context(), protocol.ExpiredQuery{Segments: 1, Before: now.Add(3 * time.Hour), Limit: 10})
	require.NoError(t, err)
	require.Equal(t, protocol.ExpiredPage{Looked: 6, Removed: 6, Done: true}, p)
	for table, want := range map[string]string{"idem_rows": "3 4 5", "idem_parts": "3 4", "idem_changes": "3 4"} {
		var left string
		require.NoError(t, pool.QueryRow(t.Context(),
			`SELECT string_agg(substr(id, 9), ' ' ORDER BY id) FROM `+table).Scan(&left))
		require.Equal(t, want, left, table)
	}
}

// Another writer of the record, such as a sweep, makes the store write the outcome twice in the transaction. The
// message is there once.
func TestAMessageIsThereOnce(t *testing.T) {
	s := newShop(t, postgres.Shared(t).Database(t))
	s.handler = func(ctx context.Context, tx *pgstore.Tx, id string) (string, error) {
		_, err := s.pool.Exec(ctx, "UPDATE idem_rows SET version = version + 2")
		require.NoError(t, err)
		require.NoError(t, tx.Publish("placed", outboxtest.Order("")))
		return id, nil
	}
	_, err := s.order(order, "a")
	require.NoError(t, err)
	require.Len(t, s.messages(order.Key("acme", "a").ID()), 1)
}

// What comes after the handler's return, or is too much, is refused.
func TestPublishRefuses(t *testing.T) {
	s := newShop(t, postgres.Shared(t).Database(t))
	var late *pgstore.Tx
	s.handler = func(_ context.Context, tx *pgstore.Tx, id string) (string, error) {
		late = tx
		return id, nil
	}
	_, err := s.order(order, "a")
	require.NoError(t, err)
	require.ErrorContains(t, late.Publish("placed", outboxtest.Order("")), "the handler has returned")
	s.handler = func(_ context.Context, tx *pgstore.Tx, id string) (string, error) {
		for n := range 250 {
			require.NoError(t, tx.Publish(fmt.Sprint(n), outboxtest.Order("")))
		}
		require.ErrorContains(t, tx.Publish("250", outboxtest.Order("")), "takes 250 messages")
		return id, nil
	}
	_, err = s.order(order, "b")
	require.ErrorContains(t, err, "takes 250 messages")
	require.Empty(t, s.messages(order.Key("acme", "b").ID()))
}

// Dead letters are listed from the oldest to the latest, all of them.
func TestDeadLettersAreListed(t *testing.T) {
	s, _ := openURL(t, postgres.Shared(t).Database(t))
	b, now := s.Outbox(), time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)
	var want, got []string
	for n := range 230 {
		e := &outbox.Entry{Record: "r", Message: outboxtest.Order(""), State: outbox.New, Number: n, Created: now}
		e.ID = outbox.MessageID("r", now, fmt.Sprint(n))
		require.NoError(t, pgstore.PutMessage(t.Context(), s, e))
		ok, err := b.DeadLetter(t.Context(), now.Add(time.Duration(n)*time.Second), e, 10, "down")
		require.True(t, ok && err == nil, "%v", err)
		want = append(want, e.ID)
	}
	for shard := range outbox.Shards {
		for cursor := ""; ; {
			all, next, err := b.Dead(t.Context(), shard, cursor)
			require.NoError(t, err)
			for _, e := range all {
				require.Equal(t, []any{outbox.Dead, "down"}, []any{e.State, e.Reason})
				got = append(got, e.ID)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	require.Equal(t, want, got)
	_, _, err := b.Dead(t.Context(), 0, "nonsense")
	require.Error(t, err)
}
