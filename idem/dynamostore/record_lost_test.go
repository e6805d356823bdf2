package dynamostore

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// write is one write of each kind, with what stands before it.
type write struct {
	name  string
	setup func(t *testing.T, f *fixture, id string)
	send  func(ctx context.Context, s *Store, id string) error
	// state and write of the record afterwards.
	state protocol.State
	write string
}

func eachWrite() []write {
	claimed := func(t *testing.T, f *fixture, id string) {
		f.claimed(t, id, "o1")
	}
	parked := func(t *testing.T, f *fixture, id string) {
		claimed(t, f, id)
		require.NoError(t, f.Finish(context.Background(), base, protocol.Finish{ID: id, Owner: "o1", Write: "parked",
			Ending: protocol.Ending{State: protocol.Unknown}}))
	}
	nothing := func(*testing.T, *fixture, string) {}
	finish := func(e protocol.Ending) func(context.Context, *Store, string) error {
		return func(ctx context.Context, s *Store, id string) error {
			return s.Finish(ctx, base, protocol.Finish{ID: id, Owner: "o1", Write: "w", Ending: e})
		}
	}
	day := base.Add(24 * time.Hour)
	return []write{
		{"claim", nothing, func(ctx context.Context, s *Store, id string) error {
			c := claim(id, "o2")
			c.Record.Write = "w"
			return s.Acquire(ctx, base, c)
		}, protocol.InProgress, "w"},
		{"takeover", claimed, func(ctx context.Context, s *Store, id string) error {
			c := claim(id, "o2")
			c.Seen, c.Record.Write = "o1.0", "w"
			return s.Acquire(ctx, base, c)
		}, protocol.InProgress, "w"},
		{"replacement", claimed, func(ctx context.Context, s *Store, id string) error {
			c := claim(id, "o2")
			c.Seen, c.Record.Write, c.Replace = "o1.0", "w", true
			return s.Acquire(ctx, base, c)
		}, protocol.InProgress, "w"},
		{"withdrawal", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.Withdraw(ctx, base, protocol.Withdrawal{Claim: claim(id, "o1"), Owner: "n", Write: "w", ExpiresAt: day})
		}, protocol.Released, "w"},
		{"withdrawal of nothing", nothing, func(ctx context.Context, s *Store, id string) error {
			return s.Withdraw(ctx, base, protocol.Withdrawal{Claim: claim(id, "o1"), Owner: "n", Write: "w", ExpiresAt: day})
		}, protocol.Released, "w"},
		{"extension", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.Extend(ctx, base, protocol.Extension{ID: id, Owner: "o1", Write: "w", LeaseUntil: base.Add(time.Minute), ExpiresAt: day})
		}, protocol.InProgress, "w"},
		{"step", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.RecordStep(ctx, base, protocol.StepWrite{ID: id, Owner: "o1", Write: "w", Name: "charge", Begin: true})
		}, protocol.InProgress, "w"},
		{"completion", claimed, finish(protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day}), protocol.Completed, "w"},
		{"outcome in atomic mode", nothing, func(ctx context.Context, s *Store, id string) error {
			w := completion(id, "o1", []byte("{}"))
			w.Write, w.Attempt = "w", protocol.Atomic{Claim: claim(id, "o1")}
			return s.Finish(ctx, base, w)
		}, protocol.Completed, "w"},
		{"outcome in atomic mode, over a seen record", claimed, func(ctx context.Context, s *Store, id string) error {
			w := completion(id, "o2", []byte("{}"))
			c := claim(id, "o2")
			c.Seen = "o1.0"
			w.Write, w.Attempt = "w", protocol.Atomic{Claim: c}
			return s.Finish(ctx, base, w)
		}, protocol.Completed, "w"},
		{"fence", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.Finish(ctx, base, protocol.Finish{ID: id, Owner: "o1", NewOwner: "nobody", Write: "w",
				Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true}})
		}, protocol.Unknown, "w"},
		{"commit", claimed, func(ctx context.Context, s *Store, id string) error {
			tx := new(Tx)
			tx.Put(types.Put{TableName: s.table, Item: key(id + "-business")}, nil)
			w := completion(id, "o1", []byte("{}"))
			w.Write, w.Unit = "w", tx
			return s.Finish(ctx, base, w)
		}, protocol.Completed, "w"},
		{"failure", claimed, finish(protocol.Ending{State: protocol.Failed, Failure: &protocol.Failure{Message: "no"}, ExpiresAt: day}), protocol.Failed, "w"},
		{"release", claimed, finish(protocol.Ending{State: protocol.Released, ExpiresAt: day}), protocol.Released, "w"},
		{"park", claimed, finish(protocol.Ending{State: protocol.Unknown}), protocol.Unknown, "w"},
		{"lapse", claimed, func(ctx context.Context, s *Store, id string) error {
			return s.Settle(ctx, base, protocol.Settlement{ID: id, Kind: protocol.EventLapse, Seen: "o1.0", Write: "w",
				Ending: protocol.Ending{State: protocol.Unknown}})
		}, protocol.Unknown, "w"},
		{"resolution", parked, func(ctx context.Context, s *Store, id string) error {
			w := resolution(id, "parked", "r", protocol.Ending{State: protocol.Completed, Result: []byte("{}"), ExpiresAt: day})
			w.Write = "w"
			return s.Settle(ctx, base, w)
		}, protocol.Completed, "w"},
	}
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	f := open(t, nil)
	for _, w := range eachWrite() {
		check := func(t *testing.T, id string) {
			rec := f.get(t, id)
			require.NotNil(t, rec)
			require.Equal(t, w.state, rec.State)
			require.Equal(t, w.write, rec.Write)
		}
		// Twice the write is applied and its answer lost, so that the retry fails on the condition
		// that the write itself made false; or it is lost; or another transaction has the item.
		for name, fault := range map[string]func(*http.Request) (*http.Response, error){
			"reply lost": f.wire.loseReply, "request lost": f.wire.loseRequest,
			"conflict": func(*http.Request) (*http.Response, error) { return answer(400, conflicting), nil },
		} {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				id := t.Name()
				w.setup(t, f, id)
				f.wire.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
					if n < 2 {
						return fault(req)
					}
					return nil, nil
				})
				defer f.wire.set(nil)
				require.NoError(t, w.send(t.Context(), f.Store, id))
				check(t, id)
			})
		}
		// No answer ever: the caller is told that it may have been applied. The same
		// write, sent again when the network is back, says that it was.
		t.Run(w.name+"/all replies lost", func(t *testing.T) {
			id := t.Name()
			w.setup(t, f, id)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.wire.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
				defer endAfter(3, n, cancel)
				return f.wire.loseReply(req)
			})
			isStoreError(t, w.send(ctx, f.Store, id), true)
			f.wire.set(nil)
			if w.name != "step" {
				// A first step takes two forms, and the first one's refusal was lost too.
				check(t, id)
			}
			require.NoError(t, w.send(t.Context(), f.Store, id))
			check(t, id)
		})
		// The failed condition brings no item along: one consistent read decides.
		t.Run(w.name+"/no old item", func(t *testing.T) {
			id := t.Name()
			w.setup(t, f, id)
			require.NoError(t, w.send(t.Context(), f.Store, id))
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) { return stripItem(f.wire, op, req) })
			defer f.wire.set(nil)
			require.NoError(t, w.send(t.Context(), f.Store, id))
			if w.name != "park" && w.name != "extension" && w.name != "commit" { // known by its token
				require.Contains(t, f.wire.calls(), "GetItem")
			}
			f.wire.set(nil)
			check(t, id)
		})
	}
}

// stripItem takes the old item out of a failed condition's answer.
func stripItem(w *wire, op string, req *http.Request) (*http.Response, error) {
	if op == "GetItem" {
		return nil, nil
	}
	resp, err := w.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		return resp, err
	}
	_ = resp.Body.Close()
	return answer(http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}`), nil
}

// Another attempt's record is a conflict, not a landed write, with and without the item.
func TestConflictWithoutOldItem(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	f.claimed(t, "k", "o1")
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) { return stripItem(f.wire, op, req) })
	rec := isConflict(t, f.Acquire(ctx, base, claim("k", "o2")))
	require.Equal(t, "o1", rec.Owner)
	require.Equal(t, []string{"PutItem", "GetItem"}, f.wire.calls())

	require.Nil(t, isConflict(t, f.Finish(ctx, base, completion("gone", "o1", nil))), "there is no record")
}

// A refusal that was read but whose record cannot be: the write is not in doubt.
func TestOldItemCannotBeRead(t *testing.T) {
	f := open(t, nil)
	f.claimed(t, "k", "o1")
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op == "GetItem" {
			return answer(http.StatusBadRequest, noAccess), nil
		}
		return stripItem(f.wire, op, req)
	})
	failed := isStoreError(t, f.Acquire(t.Context(), base, claim("k", "o2")), false)
	require.ErrorContains(t, failed, "AccessDenied")
}
