package outage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

const (
	put, update, get = "PutItem", "UpdateItem", "GetItem"
	// withdraw is the UpdateItem that takes a claim back.
	withdraw = "withdraw"
	budget   = time.Second
	deadline = 30 * time.Second
)

var (
	repeatable    = idem.Operation{Name: "work", Repeat: idem.Repeatable}
	notRepeatable = idem.Operation{Name: "work"}
)

// setup is an engine over DynamoDB Local with a network that can be broken.
type setup struct {
	t       *testing.T
	network *faultnet.Network
	kept    faultnet.Kept
	engine  *idem.Engine
	store   *dynamostore.Store
	ran     int
}

func open(t *testing.T, endpoint string, network *faultnet.Network, table string) (*idem.Engine, *dynamostore.Store) {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint, Transport: network})
	require.NoError(t, err)
	if table == "" {
		table = "outage-" + rand.Text()
		require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	}
	store, err := dynamostore.New(client, table, nil)
	require.NoError(t, err)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: budget})
	require.NoError(t, err)
	return engine, store
}

func newSetup(t *testing.T) *setup {
	s := &setup{t: t, network: faultnet.New()}
	s.engine, s.store = open(t, dynamotest.Endpoint(t), s.network, "")
	return s
}

// fail gives the operations a fault, and no others.
func (s *setup) fail(f faultnet.Fault, operations ...string) {
	s.network.Set(func(c *faultnet.Call) faultnet.Fault {
		op := c.Operation
		if bytes.Contains(c.Body, []byte(`":new_owner"`)) {
			op = withdraw
		}
		if slices.Contains(operations, op) {
			return f
		}
		return nil
	})
}

// call makes a call as Lambda does, with a kill time.
func (s *setup) call(op idem.Operation, key string, in func()) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	end, _ := ctx.Deadline()
	out, err := s.engine.Execute(idem.WithKillTime(ctx, end), idem.Call{
		Key: op.Key("acme", key), Fingerprint: fingerprint.Bytes([]byte(key)),
		Run: func(context.Context) idem.Answer {
			s.ran++
			if in != nil {
				in()
			}
			return idem.Answer{Body: fmt.Appendf(nil, "run %d", s.ran)}
		},
	})
	return string(out.Body), err
}

// served makes a call until the table answers within the budget, which a busy machine
// may take some calls for.
func (s *setup) served(op idem.Operation, key string, in func()) (string, error) {
	for {
		value, err := s.call(op, key, in)
		if !errors.Is(err, idem.ErrStoreUnavailable) {
			return value, err
		}
	}
}

func (s *setup) record(op idem.Operation, key string) *idem.Record {
	s.network.Set(nil)
	rec, err := s.store.Get(s.t.Context(), op.Key("acme", key).ID())
	require.NoError(s.t, err)
	return rec
}

// ended is the record when the engine is done with the calls so far: what a busy
// machine left it no time for is done with the next invocation.
func (s *setup) ended(op idem.Operation, key string) *idem.Record {
	s.network.Set(nil)
	require.NoError(s.t, s.engine.Flush(s.t.Context()))
	rec := s.record(op, key)
	require.NotNil(s.t, rec)
	return rec
}

// withinBudget: a dead store does not eat the deadline. The slack is for a busy
// machine; the tests of package idem hold the budget exactly, in virtual time.
func withinBudget(t *testing.T, begun time.Time) {
	require.Less(t, time.Since(begun), deadline/2, "the answer came after the budget")
}

func TestDownBeforeTheClaim(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faultnet.Fault{
		"hangs": faultnet.Hang, "throttles": faultnet.Throttle, "breaks": faultnet.ServerError, "resets": faultnet.LoseRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			s.fail(f, put, update, get, withdraw)
			begun := time.Now()
			_, err := s.call(repeatable, "k", nil)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			withinBudget(t, begun)
			require.Zero(t, s.ran)
			require.Nil(t, s.record(repeatable, "k"))
			value, err := s.served(repeatable, "k", nil)
			require.NoError(t, err)
			require.Equal(t, "run 1", value)
		})
	}
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		s := &setup{t: t}
		s.engine, s.store = open(t, "http://"+l.Addr().String(), faultnet.New(), "none")
		begun := time.Now()
		_, err = s.call(repeatable, "k", nil)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		withinBudget(t, begun)
		require.Zero(t, s.ran)
	})
}

const replyLost = "reply lost"

func TestDownAfterTheHandler(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faultnet.Fault{
		"hangs": faultnet.Hang, "throttles": faultnet.Throttle, "breaks": faultnet.ServerError,
		replyLost: faultnet.LoseReply, "request lost": faultnet.LoseRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			value, err := s.served(notRepeatable, "k", func() { s.fail(f, put, update, get, withdraw) })
			require.NoError(t, err)
			require.Equal(t, "run 1", value, "the caller gets the handler's result")
			rec := s.record(notRepeatable, "k")
			require.NotNil(t, rec)
			if name == replyLost {
				require.Equal(t, idem.Completed, rec.State)
			} else {
				require.Equal(t, idem.InProgress, rec.State, "the claim is kept")
			}

			other, err := s.served(notRepeatable, "other", nil)
			require.NoError(t, err)
			require.Equal(t, "run 2", other)
			require.Equal(t, idem.Completed, s.record(notRepeatable, "k").State, "the next invocation writes it")
			value, err = s.served(notRepeatable, "k", nil)
			require.NoError(t, err)
			require.Equal(t, "run 1", value)
			require.Equal(t, 2, s.ran)
		})
	}
}

// TestWithdrawalWaitsForTheNextInvocation: while the claim cannot be taken back
// it may still land; the next invocation takes it back before anything else.
func TestWithdrawalWaitsForTheNextInvocation(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.fail(s.kept.Lose, put, withdraw)
	_, err := s.call(notRepeatable, "k", nil)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	s.network.Set(nil)
	replies, err := s.kept.Deliver()
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(replies, func(r *faultnet.Reply) bool { return r.Status == 200 }), "one of the requests lands late")

	value, err := s.served(notRepeatable, "k", nil)
	require.NoError(t, err)
	require.Equal(t, "run 1", value)
}

// TestRepliesOfTheClaimLost: the claim may have landed, so it is taken back; the
// next call is not blocked, and the claim cannot land later.
func TestRepliesOfTheClaimLost(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			lost := s.kept.Lose
			if applied {
				lost = faultnet.LoseReply
			}
			s.fail(lost, put)
			_, err := s.call(notRepeatable, "k", nil)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Zero(t, s.ran)
			before := s.ended(notRepeatable, "k")
			require.Equal(t, idem.Released, before.State)
			require.False(t, before.Uncertain, "execution is excluded")

			s.late(before)
			value, err := s.served(notRepeatable, "k", nil)
			require.NoError(t, err)
			require.Equal(t, "run 1", value)
		})
	}
}

// late delivers what was lost and shows that it changes nothing.
func (s *setup) late(before *idem.Record) {
	replies, err := s.kept.Deliver()
	require.NoError(s.t, err)
	for _, r := range replies {
		require.Equal(s.t, 400, r.Status, "a write that was taken back landed")
	}
	require.Equal(s.t, before, s.record(notRepeatable, "k"))
}

func TestRepliesOfATakeoverLost(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			lost := s.kept.Lose
			if applied {
				lost = faultnet.LoseReply
			}
			require.NoError(t, s.released("k"))
			s.fail(lost, update)
			_, err := s.call(notRepeatable, "k", nil)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Zero(t, s.ran)
			before := s.ended(notRepeatable, "k")
			require.Equal(t, idem.Released, before.State)
			s.late(before)
			value, err := s.served(notRepeatable, "k", nil)
			require.NoError(t, err)
			require.Equal(t, "run 1", value)
		})
	}
}

// released leaves a released record.
func (s *setup) released(key string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	_, err := s.engine.Execute(ctx, idem.Call{
		Key: notRepeatable.Key("acme", key), Fingerprint: fingerprint.Bytes([]byte(key)),
		Run: func(context.Context) idem.Answer { return idem.Answer{Class: idem.ClassNotExecuted} },
	})
	return err
}

func TestResultsOfEverySizeReplayByteForByte(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for _, size := range []int{0, 1 << 10, 390 << 10, 450 << 10, 5632 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			body := make([]byte, size)
			for i := range body {
				body[i] = byte(i*7919 ^ i>>7)
			}
			call := idem.Call{
				Key: notRepeatable.Key("acme", fmt.Sprint("size", size)), Fingerprint: fingerprint.Bytes(nil),
				Run: func(context.Context) idem.Answer { return idem.Answer{Body: body} },
			}
			for range 2 {
				out, err := s.engine.Execute(t.Context(), call)
				for errors.Is(err, idem.ErrStoreUnavailable) { // a busy machine
					out, err = s.engine.Execute(t.Context(), call)
				}
				require.NoError(t, err)
				require.Len(t, out.Body, size)
				require.True(t, string(body) == string(out.Body), "the bytes differ")
			}
		})
	}
}
