package idemtest

import (
	"context"
	"errors"
	"testing"

	"github.com/idem-go/idempotency/idem"
)

// errDirect ends the attempt of a [Context].
var errDirect = errors.New("idemtest: the test that called the handler directly has ended")

// Context returns a context for calling a handler directly, without a wrapper or
// [idem.Do] around it: the one that the handler of a first attempt of this key's
// operation gets. [idem.Token] and [idem.InfoOf] tell what they tell there, [idem.Step]
// records over an in-memory store, and a unit of work collects:
// dynamostore.TxOf(ctx) in the test is the one that the handler has filled, and commits
// nowhere. What the handler returns goes to the test and is recorded nowhere.
//
//	receipt, err := charge(idemtest.Context(t, Charge.Key("acme", "payment-1")), payment)
//
// Each call is an attempt of its own, over a store of its own. The attempt ends, and the
// context with it, when the test does. A nil tb is for runnable examples, which have no
// end; a mistake then panics.
func Context(tb testing.TB, key idem.Key) context.Context {
	if tb != nil {
		tb.Helper()
	}
	h := New(tb, nil)
	handler := make(chan context.Context, 1)
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := idem.Do(h.process().ctx, h.Engine, key, "called directly",
			func(ctx context.Context, _ string) (bool, error) {
				handler <- ctx
				<-end
				return false, idem.NotExecuted(errDirect)
			})
		ended <- err
	}()
	select {
	case ctx := <-handler:
		if tb != nil {
			tb.Cleanup(func() {
				close(end)
				<-ended
			})
		}
		return ctx
	case err := <-ended:
		h.fail("Context: %v", err)
		panic(err) // the tb returns from Fatalf
	}
}
