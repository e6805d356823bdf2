// Package reconcile settles from outside what an attempt left open: for operators, for
// webhooks that bring the provider's answer, and for the sweep that looks for claims
// whose process has died.
//
//	r, err := reconcile.New(questions, nil)
//	err = r.Resolve(ctx, key.ID(), reconcile.Resolution{
//		To: idem.Failed, Failure: &idem.Failure{Message: "the card was declined"}, Ref: "pay_1",
//	}, reconcile.By{Who: "alice", Why: "the provider's console says so"})
//
// A [Sweeper] does so every minute, without anybody: it parks the claims whose lease is
// over, asks each operation's [Operation.Probe] what has become of it, hands abandoned work
// that is repeatable to [Operation.OnAbandoned], and leaves to people what nobody can tell.
//
// Whatever it changes is conditional on what it has read, replaces the owner where the
// record leaves the hands of its attempt, and is kept with who, when and why in the same
// transaction. So a webhook, an operator, a sweep and the attempt's own late outcome may
// come in any order: the first one counts, and the others are told.
package reconcile
