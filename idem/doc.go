// Package idem runs an operation under a claim, at most one at a time per key, and gives
// later calls with the same key and input the recorded outcome.
//
//	var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
//
//	engine, err := idem.New(store, nil)
//	receipt, err := idem.Do(ctx, engine, Charge.Key(tenant, paymentID), payment, charge)
//
// While its record is kept, an operation has at most one claim holder at a time;
// an attempt that was taken over or resolved can change nothing; every later call
// with the same key and input gets the recorded outcome. An operation declared
// not repeatable is never run again after an attempt whose outcome is unknown.
// Exactly-once effects in another system need its part: it must accept [Token] as an
// idempotency key.
//
// # States
//
// A record is in_progress while an attempt holds its claim, then completed or failed. It
// is released after an attempt that is safe to run again, and unknown after one that may
// have taken effect: package reconcile resolves it. When the lease of a claim is over without
// an outcome, the next call takes a repeatable operation over, and parks any other one as unknown.
// An expired record counts as absent. Open questions (unknown, pending, released with steps) never
// expire. Package protocol has the machine.
//
// # Words of time
//
// The kill time is when Lambda ends the process. The guard is how long before it the handler's
// context ends ([Options.Guard]). The margin is how long others wait beyond the end of a lease,
// since clocks differ ([Options.Margin]).
//
// Package dynamostore keeps records in DynamoDB, memstore in memory. [Call] and
// [Engine.Execute] are for wrappers; handlers need [Do] or [Run].
package idem
