package outage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
)

const (
	put, update, get = "PutItem", "UpdateItem", "GetItem"
	budget           = time.Second
	deadline         = 30 * time.Second
)

var (
	repeatable    = idem.Operation{Name: "work", Repeat: idem.Repeatable}
	notRepeatable = idem.Operation{Name: "work"}
)

// stage is an engine over DynamoDB Local with a wire that can be broken, and a
// second engine with a whole one.
type stage struct {
	t      *testing.T
	wire   *transport
	engine *idem.Engine
	store  *dynamostore.Store
	ran    int
}

func open(t *testing.T, endpoint string, wire *transport, table string) (*idem.Engine, *dynamostore.Store) {
	o := &dynamostore.ClientOptions{Endpoint: endpoint}
	if wire != nil {
		o.Transport = wire
	}
	client, err := dynamostore.NewClient(aws.Config{}, o)
	require.NoError(t, err)
	if table == "" {
		table = "outage-" + rand.Text()
		require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	}
	store, err := dynamostore.New(client, table, nil)
	require.NoError(t, err)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: budget})
	require.NoError(t, err)
	return engine, store
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, wire: &transport{}}
	s.engine, s.store = open(t, dynamotest.Endpoint(t), s.wire, "")
	return s
}

// call makes a call as Lambda does, with a kill time.
func (s *stage) call(op idem.Operation, key string, in func()) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	end, _ := ctx.Deadline()
	out, err := s.engine.Execute(idem.WithKillTime(ctx, end), idem.Call{
		Key: op.Key("acme", key), Fingerprint: idem.FingerprintBytes([]byte(key)),
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
func (s *stage) served(op idem.Operation, key string, in func()) (string, error) {
	for {
		value, err := s.call(op, key, in)
		if !errors.Is(err, idem.ErrStoreUnavailable) {
			return value, err
		}
	}
}

func (s *stage) record(op idem.Operation, key string) *idem.Record {
	s.wire.set(pass)
	rec, err := s.store.Get(s.t.Context(), op.Key("acme", key).ID())
	require.NoError(s.t, err)
	return rec
}

// settled is the record when the engine is done with the calls so far: what a busy
// machine left it no time for is done with the next invocation.
func (s *stage) settled(op idem.Operation, key string) *idem.Record {
	s.wire.set(pass)
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
	for name, f := range map[string]fault{"hangs": hang, "throttles": throttle, "breaks": broken, "resets": lostAsk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.wire.set(f, put, update, get, withdraw)
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
		s := &stage{t: t}
		s.engine, s.store = open(t, "http://"+l.Addr().String(), nil, "none")
		begun := time.Now()
		_, err = s.call(repeatable, "k", nil)
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		withinBudget(t, begun)
		require.Zero(t, s.ran)
	})
}

func TestDownAfterTheHandler(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"hangs": hang, "throttles": throttle, "breaks": broken, "reply lost": lostReply, "request lost": lostAsk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			value, err := s.served(notRepeatable, "k", func() { s.wire.set(f, put, update, get, withdraw) })
			require.NoError(t, err)
			require.Equal(t, "run 1", value, "the caller gets the handler's result")
			rec := s.record(notRepeatable, "k")
			require.NotNil(t, rec)
			if f == lostReply {
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
	s := newStage(t)
	s.wire.set(lostAsk, put, withdraw)
	_, err := s.call(notRepeatable, "k", nil)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	s.wire.set(pass)
	statuses, err := s.wire.deliver()
	require.NoError(t, err)
	require.Contains(t, statuses, 200, "one of the requests lands late")

	value, err := s.served(notRepeatable, "k", nil)
	require.NoError(t, err)
	require.Equal(t, "run 1", value)
}

// TestRepliesOfTheClaimLost: the claim may have landed, so it is taken back; the
// next call is not blocked, and the claim cannot land later.
func TestRepliesOfTheClaimLost(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"after it was applied": lostReply, "before it arrived": lostAsk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.wire.set(f, put)
			_, err := s.call(notRepeatable, "k", nil)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Zero(t, s.ran)
			before := s.settled(notRepeatable, "k")
			require.Equal(t, idem.Retryable, before.State)
			require.False(t, before.Uncertain, "execution is excluded")

			s.late(before)
			value, err := s.served(notRepeatable, "k", nil)
			require.NoError(t, err)
			require.Equal(t, "run 1", value)
		})
	}
}

// late delivers what was lost and shows that it changes nothing.
func (s *stage) late(before *idem.Record) {
	statuses, err := s.wire.deliver()
	require.NoError(s.t, err)
	for _, status := range statuses {
		require.Equal(s.t, 400, status, "a write that was taken back landed")
	}
	require.Equal(s.t, before, s.record(notRepeatable, "k"))
}

func TestRepliesOfATakeoverLost(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"after it was applied": lostReply, "before it arrived": lostAsk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			require.NoError(t, s.released("k"))
			s.wire.set(f, update)
			_, err := s.call(notRepeatable, "k", nil)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Zero(t, s.ran)
			before := s.settled(notRepeatable, "k")
			require.Equal(t, idem.Retryable, before.State)
			s.late(before)
			value, err := s.served(notRepeatable, "k", nil)
			require.NoError(t, err)
			require.Equal(t, "run 1", value)
		})
	}
}

// released leaves a retryable record.
func (s *stage) released(key string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), deadline)
	defer cancel()
	_, err := s.engine.Execute(ctx, idem.Call{
		Key: notRepeatable.Key("acme", key), Fingerprint: idem.FingerprintBytes([]byte(key)),
		Run: func(context.Context) idem.Answer { return idem.Answer{Class: idem.ClassNotExecuted} },
	})
	return err
}

func TestResultsOfEverySizeReplayByteForByte(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, size := range []int{0, 1 << 10, 390 << 10, 450 << 10, 5632 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			body := make([]byte, size)
			for i := range body {
				body[i] = byte(i*7919 ^ i>>7)
			}
			call := idem.Call{
				Key: notRepeatable.Key("acme", fmt.Sprint("size", size)), Fingerprint: idem.FingerprintBytes(nil),
				Run: func(context.Context) idem.Answer { return idem.Answer{Body: body} },
			}
			for range 2 {
				out, err := s.engine.Execute(t.Context(), call)
				require.NoError(t, err)
				require.Len(t, out.Body, size)
				require.True(t, string(body) == string(out.Body), "the bytes differ")
			}
		})
	}
}
