// Package idemtest helps to test handlers that run under package idem: it
// delivers a request twice, many times at once, and across a crash, against an
// in-memory store whose clock the test moves.
//
//	h := idemtest.New(t, nil)
//	got := idemtest.Deliver(h, 2, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
//		return idem.Do(ctx, e, Charge.Key("acme", "payment-1"), payment, charge)
//	})
//
// A [Harness] is one engine, as one process has it, over one store, as all
// processes share it. [Harness.Crash] and [Harness.CrashAfter] kill the process,
// [Harness.Restart] starts the next one over the same records. [Clock.Advance]
// lets a lease lapse or an outcome expire without waiting for it. [Faults] stands
// between engine and store and loses, delays or refuses single calls; it wraps
// any [idem.Store]. A sweep or a resolution works on the same records and the same clock:
//
//	r, err := reconcile.New(h.Store, &reconcile.Options{Now: h.Clock.Now})
//
// After five probes in a row without an answer a sweeper leaves the provider alone for a minute
// of real time, which [Clock.Advance] does not move: test that in package synctest, or go on
// with a new sweeper.
//
// A wrapped handler, of package idemlambda or idemhttp, is made from [Harness.Engine], again
// after each Restart: idemlambda.Wrap has an example with a crash.
//
// [Explore] runs a handler again and again, each time with another fault, and finds what takes place
// twice, or not at all: README.md of this folder begins with such a mistake.
//
// Nothing is logged unless the engine's options have an Observer.
//
// [Context] is for calling a handler directly. memstore.NewPlain turns every wrapper
// into a plain call, for tests that are about something else.
//
// A unit of work, such as a dynamostore.Tx, commits in memory together with the outcome
// or not at all. [Harness.Published] shows its messages, [memstore.Store.Units] what else
// it has collected, and [memstore.Store.Conditions] says which of its conditions hold:
// memory has no tables, applies no update and evaluates no expression, and refuses a
// condition that the test has not decided about. What depends on items needs DynamoDB:
// dynamodblocal.Start, of idem/testenv/dynamodblocal, starts one, the command
// local/cmd/with-dynamodb one for a whole go test, and dynamostore.CreateTable makes the
// table. A process that dies there is a copy of the test binary that exits in its handler, and
// that must not reach the line which starts the copy: dynamodb_test.go of this package is
// such a test. A transaction of pgstore needs Postgres: postgres.Shared, of
// idem/testenv/postgres, starts one.
//
// The package imports testing: use it from tests only.
package idemtest
