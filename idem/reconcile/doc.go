// Package reconcile settles from outside what an attempt left open: for operators, for
// webhooks that bring the provider's answer, and for the sweep that looks for claims
// whose process has died.
//
//	r, err := reconcile.New(questions, nil)
//	err = r.Resolve(ctx, key.ID(), reconcile.Resolution{
//		To: idem.Failed, Failure: &idem.Failure{Message: "the card was declined"}, Ref: "pay_1",
//	}, reconcile.Change{Actor: "alice", Reason: "the provider's console says so"})
//
//	// It did not happen: the next call runs the handler again.
//	err = r.Resolve(ctx, key.ID(), reconcile.Resolution{To: idem.Released},
//		reconcile.Change{Actor: "alice", Reason: "no such payment"})
//
// A [Sweeper] does this without a person; run it every minute. It parks the claims whose
// lease is over and asks each operation's [Operation.Probe] what has become of it. It hands
// abandoned work that is repeatable to [Operation.OnAbandoned]. Questions that a probe cannot
// answer are escalated.
//
// Every change is conditional on what was read. A resolution replaces the owner, so that
// the attempt can change nothing any more. Who changed the record, when and why is written
// in the same transaction. A webhook, an operator, a sweep and the attempt's own late
// outcome may therefore come in any order: the first one counts, and the others get an error.
//
// [Reconciler.Extend] keeps a record that has ended for longer than its retention, and
// [Reconciler.Forget] removes it. [Reconciler.List] has what is open, [Reconciler.History] the changes
// of one record and [Reconciler.Changes] those of all, by time.
//
// Package ledger compares what a provider did in a day with the records of that day.
package reconcile
