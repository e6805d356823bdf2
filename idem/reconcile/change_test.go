package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const extended, forgotten = protocol.ChangeExtended, protocol.ChangeForgotten

// extend keeps the record until a time after now, by alice, who may have looked.
func (r *rig) extend(after time.Duration) error {
	return r.Extend(r.t.Context(), r.key.ID(), r.Clock.Now().Add(after), r.by())
}

// extendsBy checks that this is possible, and extendsNot that it is refused so.
func extendsBy(after time.Duration) move {
	return func(r *rig) { require.NoError(r.t, r.extend(after)) }
}

func extendsNot(want any) move { return func(r *rig) { isError(r.t, r.extend(dispute), want) } }

func forgets(r *rig) { require.NoError(r.t, r.Forget(r.t.Context(), r.key.ID(), alice)) }

// expires lets the record's time come.
func expires(r *rig) { r.until(r.record().ExpiresAt) }

// deleted is what TTL does.
func deleted(r *rig) { r.Store.Delete(r.key.ID()) }

// kept checks that the record is kept so long from now on, in whole seconds.
func kept(d time.Duration) move {
	return func(r *rig) {
		longer := r.record().ExpiresAt.Sub(r.Clock.Now().Add(d))
		require.GreaterOrEqual(r.t, longer, time.Duration(0))
		require.Less(r.t, longer, time.Second)
	}
}

func TestAnExtensionKeepsARecord(t *testing.T) {
	const overMargin = idem.DefaultMargin + time.Second
	var recorded time.Time
	replays := func(r *rig) {
		res, err := idem.Run(r.t.Context(), r.Engine, r.key, 1, mustNotRun(r))
		require.NoError(r.t, err)
		require.True(r.t, res.Outcome.Replayed)
		require.Equal(r.t, recorded, res.Outcome.RecordedAt, "not when somebody decided to keep it")
	}
	attempt := func(want int) move { return func(r *rig) { require.Equal(r.t, want, r.record().Attempt) } }
	play(t, []story{
		{"until then, as old as before", refund, []move{
			ends(nil), func(r *rig) { recorded = r.record().UpdatedAt }, wait(time.Hour + time.Millisecond), look,
			extendsBy(dispute),
			kept(dispute), changed(extended), func(r *rig) { require.Equal(r.t, r.record().ExpiresAt, r.last().Until) },
			wait(dispute - time.Second), replays, wait(time.Second + overMargin), gets(returns(1, nil), 1), attempt(2),
		}},
		{"once, if it is kept as long", refund, []move{
			ends(nil), extendsBy(dispute), extendsBy(dispute - time.Second), extendsBy(time.Hour), kept(dispute),
			changed(extended),
		}},
		{"that is released", refund, []move{
			ends(idem.NotExecuted(errPlain)), extendsBy(dispute), wait(dispute - time.Hour), ends(nil), attempt(2),
		}},
		{"not in progress", refund, []move{
			gets(func(r *rig) handler {
				return func(context.Context, int) (int, error) {
					r.play(extendsNot(reconcile.ErrOpen), extendsNot("this one is in_progress"))
					return 1, nil
				}
			}, 1), changed(),
		}},
		{"not an open question", refund, []move{ends(errPlain), extendsNot(reconcile.ErrOpen), changed()}},
		{"not a lapsed claim", refund, []move{lapsed, extendsNot(reconcile.ErrOpen), changed()}},
		{"not an absent one", refund, []move{extendsNot(reconcile.ErrNotFound), changed()}},
		{"not an expired one", refund, []move{
			ends(nil), expires, extendsNot(reconcile.ErrExpired), extendsNot("the next call runs the handler again"),
			deleted, extendsNot(reconcile.ErrNotFound), changed(),
		}},
		{"not until a time that is none", refund, []move{ends(nil), func(r *rig) {
			for _, at := range []time.Time{r.Clock.Now().Add(-time.Second), {}, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
				require.ErrorAs(r.t, r.Extend(r.t.Context(), r.key.ID(), at, alice), new(*idem.ConfigError))
			}
			unsigned := reconcile.Change{Actor: "alice"}
			require.ErrorAs(r.t, r.Extend(r.t.Context(), r.key.ID(), r.Clock.Now().Add(dispute), unsigned),
				new(*idem.ConfigError))
		}}},

		// What happens between the read and the write of an extension counts.
		{"not one that TTL deletes meanwhile", refund, []move{
			ends(nil), before(idemtest.Prolong, deleted), extendsNot(reconcile.ErrNotFound), changed(),
		}},
		{"not one that expires meanwhile", refund, []move{
			ends(nil), func(r *rig) {
				r.Faults.Next(idemtest.Prolong, func(_ context.Context, c *idemtest.Call) error { expires(r); return c.Lost() })
			}, extendsNot(reconcile.ErrExpired), changed(),
		}},
		{"that is kept for longer meanwhile", refund, []move{
			ends(nil), before(idemtest.Prolong, extendsBy(dispute+time.Hour)), extendsBy(dispute), kept(dispute + time.Hour),
			changed(extended),
		}},
		{"not one that is forgotten meanwhile", refund, []move{
			ends(nil), before(idemtest.Prolong, forgets), extendsNot(reconcile.ErrNotFound), changed(forgotten),
		}},
		{"not one that was extended since it was seen", refund, []move{
			ends(nil), look, extendsBy(dispute), extendsNot(reconcile.ErrChanged),
		}},
		{"not one that a call has claimed as expired before", refund, []move{
			// The operator's clock is behind.
			ends(nil), expires, wait(-time.Millisecond), look,
			before(idemtest.Prolong, wait(overMargin), ends(nil), wait(-overMargin)),
			extendsNot(reconcile.ErrChanged), attempt(2),
		}},
		{"that a call takes for expired, and claims after it", refund, []move{
			ends(nil), expires, wait(overMargin), extendsNot(reconcile.ErrExpired), next(idemtest.Acquire, idemtest.Pass),
			before(idemtest.Acquire, wait(-time.Minute), extendsBy(dispute), wait(time.Minute)), // it replaces the record
			gets(mustNotRun, 7), changed(extended), // an operator knows that it is kept
		}},
		// The parked attempt's outcome comes while somebody keeps what was resolved.
		{"over a late original", refund, []move{
			gets(func(r *rig) handler {
				return func(context.Context, int) (int, error) { r.play(lapse, resolves(to(7)), extends); return 8, nil }
			}, 7), kept(dispute), changed(resolved, extended),
		}},
		// The reply to the outcome was lost, and the record is extended before the attempt asks what became of it.
		{"whose outcome has landed", refund, []move{
			func(r *rig) {
				r.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
					require.NoError(r.t, c.Do(ctx))
					extends(r)
					return c.Lost()
				})
			},
			gets(returns(8, nil), 8), is(idem.Completed),
		}},
	}...)

	// Whatever becomes of a request or a reply, the record is kept or it is not, and the history says so once.
	for name, faults := range map[string][]idemtest.Fault{
		"reply lost":           {idemtest.LoseReply},
		"request lost":         {idemtest.LoseRequest},
		"lost twice":           {idemtest.LoseRequest, idemtest.LoseReply},
		"all replies lost":     {idemtest.LoseReply, idemtest.LoseReply, idemtest.LoseReply},
		"refused":              {idemtest.Refuse},
		"no conflicting item":  {idemtest.BareConflict},
		"all requests lost":    {idemtest.LoseRequest, idemtest.LoseRequest, idemtest.LoseRequest},
		"nothing comes of it":  {idemtest.Deny},
		"as if nothing was up": {idemtest.Pass},
	} {
		fails := strings.HasPrefix(name, "all") || name == "refused" || name == "nothing comes of it"
		play(t, story{"over a bad network: " + name, refund, []move{
			ends(nil), next(idemtest.Prolong, faults...),
			func(r *rig) {
				before := r.record()
				err := r.extend(dispute)
				kept := r.record().ExpiresAt.After(before.ExpiresAt)
				require.Equal(r.t, fails, err != nil, "%v", err)
				require.True(r.t, kept || fails)
				require.Len(r.t, r.changes(r.key), map[bool]int{true: 1}[kept])
			},
			extends, changed(extended), // it can be done again
		}})
	}

	// Why a record is kept for longer, such as a paused queue, holds for the resolution that replaces its own too.
	for name, tc := range map[string]struct {
		extend move
		to     reconcile.Resolution
		left   time.Duration
	}{
		"extended, and failed":    {extends, toFailed, dispute - time.Hour},
		"extended, and released":  {extends, toReleased, dispute - time.Hour},
		"not extended, and fails": {times(0), toFailed, idem.DefaultRetention}, // a new one
	} {
		play(t, story{"another resolution: " + name, refund, []move{
			lapsed, resolves(toCompleted), tc.extend, wait(time.Hour), next(idemtest.Settle, idemtest.LoseReply),
			resolves(again(tc.to)), is(tc.to.To), kept(tc.left),
		}})
	}
}

func TestAChangeOfARecordThatKeepsBeingWrittenEnds(t *testing.T) {
	always := always(idemtest.BareConflict, idemtest.Prolong, idemtest.Forget, idemtest.Settle)
	play(t, story{"one that has ended", refund, []move{ends(nil), always, extendsNot(reconcile.ErrChanged), func(r *rig) {
		require.ErrorIs(r.t, r.Forget(r.t.Context(), r.key.ID(), alice), reconcile.ErrChanged)
	}}}, story{"an open one", refund, []move{lapsed, always, refuses(toCompleted, reconcile.ErrChanged)}})
}

// lettered is a store that has an outbox.
type lettered struct {
	reconcile.Store
	noted []protocol.Audit
	pages [][]*outbox.Entry
	fault error
}

func (l *lettered) Messages(_ context.Context, _, page string) ([]*outbox.Entry, string, error) {
	n, _ := strconv.Atoi(page)
	if next := n + 1; next < len(l.pages) {
		return l.pages[n], strconv.Itoa(next), l.fault
	}
	return l.pages[n], "", l.fault
}

func (l *lettered) Requeue(_ context.Context, _ *outbox.Entry, a protocol.Audit) error {
	l.noted = append(l.noted, a)
	return nil
}

func TestARequeuedDeadLetterIsInTheHistory(t *testing.T) {
	r := newRig(t, refund)
	l := &lettered{Store: r.Faults}
	rc := r.over(l)
	e := &outbox.Entry{Record: "acme#refund#1", Message: outbox.Message{ID: "m-1", Destination: "orders"}}
	require.NoError(r.t, rc.Requeue(r.t.Context(), e, alice))
	a := l.noted[0]
	require.Equal(r.t, []string{"acme#refund#1", alice.Actor, alice.Reason, "message m-1 to orders"},
		[]string{a.ID, a.Who, a.Why, a.What})
	require.Equal(r.t, protocol.ChangeRequeued, a.Change)
	require.False(r.t, a.ExpiresAt.IsZero())
	e.State, e.SentID, e.SentAt = outbox.Dispatched, "sqs-1", r.Clock.Now()
	r.Clock.Advance(reconcile.ResendAfter - time.Minute)
	require.ErrorIs(r.t, rc.Requeue(r.t.Context(), e, alice), reconcile.ErrSentLately)
	require.Len(r.t, l.noted, 1)
	r.Clock.Advance(2 * time.Minute)
	require.NoError(r.t, rc.Requeue(r.t.Context(), e, alice))
	require.Equal(r.t, "message m-1 to orders, sent before as sqs-1,", l.noted[1].What)

	require.ErrorAs(r.t, rc.Requeue(r.t.Context(), e, reconcile.Change{Actor: "alice"}), new(*idem.ConfigError))
	require.ErrorIs(r.t, r.Requeue(r.t.Context(), e, alice), errors.ErrUnsupported, "a store without an outbox")
}

func TestMessagesOfARecordAreInTheirOrder(t *testing.T) {
	r := newRig(t, refund)
	at := func(seconds, number int) *outbox.Entry {
		return &outbox.Entry{Created: time.Unix(int64(seconds), 0), Number: number}
	}
	l := &lettered{Store: r.Faults, pages: [][]*outbox.Entry{{at(2, 1), at(1, 1)}, {}, {at(1, 0), at(2, 0)}}}
	got, next, err := r.over(l).Messages(r.t.Context(), "acme#refund#1", "")
	require.NoError(r.t, err)
	require.Equal(r.t, []*outbox.Entry{at(1, 0), at(1, 1), at(2, 0), at(2, 1)}, got)
	require.Empty(r.t, next)
	l.fault = errors.New("denied")
	_, _, err = r.over(l).Messages(r.t.Context(), "acme#refund#1", "")
	require.ErrorIs(r.t, err, l.fault)
	got, _, err = r.Messages(r.t.Context(), "acme#refund#1", "")
	require.NoError(r.t, err)
	require.Empty(r.t, got, "a store without an outbox")
}

func TestAPageOfMessagesIsBounded(t *testing.T) {
	r := newRig(t, refund)
	several := func(n int) []*outbox.Entry { return slices.Repeat([]*outbox.Entry{{}}, n) }
	l := &lettered{Store: r.Faults, pages: [][]*outbox.Entry{several(60), several(60), several(60), several(1)}}
	var pages []int
	for page := ""; ; {
		got, next, err := r.over(l).Messages(r.t.Context(), "acme#refund#1", page)
		require.NoError(r.t, err)
		if pages, page = append(pages, len(got)), next; page == "" {
			break
		}
	}
	require.Equal(r.t, []int{120, 61}, pages)
}
