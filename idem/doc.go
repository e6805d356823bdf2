// Package idem runs an operation under a claim, at most one at a time per key, and gives
// later calls with the same key and input the recorded outcome.
//
//	var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
//
//	engine, err := idem.New(store, nil)
//	receipt, err := idem.Do(ctx, engine, Charge.Key(tenant, paymentID), payment, charge)
//
// # The promise
//
// While its record is kept, an operation has at most one claim holder at a time;
// an attempt that was taken over or resolved can change nothing; every later call
// with the same key and input gets the recorded outcome. An operation declared
// not repeatable is never run again after an attempt whose outcome is unknown.
//
// Exactly-once effects in another system are not promised unless that system takes
// part: it must accept [Token] as an idempotency key.
//
// # The states
//
// A record is in_progress while an attempt holds its claim, then completed or failed. It
// is released after an attempt that is safe to run again, and unknown after one that may
// have taken effect. Package protocol has the machine and its picture.
//
// A claim is one conditional write, and every later write of the attempt is conditional on
// the claim's random owner. A lease bounds how long a claim is respected. When it lapses
// without an outcome, the next call takes a repeatable operation over. Any other one is
// parked as unknown, by the next call or the sweep of package reconcile. An unknown record
// ends by the parked attempt's own late outcome, or is resolved with package reconcile.
//
// A [Step] is recorded under the claim, and later attempts skip it. A [Unit] of work is
// written together with the outcome, or not at all. In [Atomic] mode there is no claim: one write
// records the outcome. Where a call fails open ([FailOpen]) nothing is recorded.
//
// An expired record counts as absent, whether or not the store has deleted it. Open
// questions (unknown, pending, released with steps) never expire.
//
// # Words of time
//
// The kill time is when Lambda ends the process: the invocation's deadline. The guard is how
// long before it the handler's context ends, so that an outcome can still be written
// ([Options.Guard]). The observers' margin is how long others wait beyond the end
// of a lease before they take it as over, since clocks differ ([Options.Margin]).
//
// # Stores
//
// Package dynamostore keeps records in DynamoDB, memstore in memory. [Call] and
// [Engine.Execute] are for wrappers; handlers need [Do] or [Run].
package idem
